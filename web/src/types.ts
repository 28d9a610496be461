// The answers of the server, as its API sends them. Bytes and milliseconds are numbers, addresses are hex strings
// without 0x. Nothing here is computed.

/** Bytes by how often they are accessed. */
export interface Classes {
  hot: number;
  warm: number;
  cold: number;
  idle: number;
  unmeasured: number;
}

/** Bytes accessed within a time. */
export interface WorkingSet {
  "10s": number;
  "1m": number;
  "10m": number;
  "1h": number;
}

/** The figures of a process, of a cgroup, or of all together. */
export interface Row {
  resident_bytes: number;
  huge_bytes: number;
  hot_small_bytes: number;
  /** Of the classes, what was not checked itself yet. */
  estimated_bytes: number;
  swapped_bytes: number | null;
  classes: Classes;
  wss: WorkingSet;
  wss_history: number[];
}

export interface ProcessRow extends Row {
  id: string;
  pid: number;
  comm: string;
  cgroup: string;
  sampled: boolean;
  exited: boolean;
}

export interface CgroupMemory {
  anon: number;
  file: number;
  slab: number;
  swap: number;
  limit: number | null;
}

export interface CgroupRow extends Row {
  path: string;
  processes: number;
  pod_uid: string | null;
  container_id: string | null;
  unit: string | null;
  memory: CgroupMemory | null;
}

export interface Host {
  name: string;
  kernel: string;
  cpu: string;
  cpus: number;
  memory_bytes: number;
  version: string;
  source: string;
  source_note: string;
  monitor_cpu_pct: number;
  slowdown_pct: number;
}

export interface ActionRow {
  action: string;
  result: string;
  huge_ranges: number;
  bytes: number;
}

export interface EventRow {
  at_ms: number;
  text: string;
}

/** What an action would do to memory of a process, or why it would do nothing. */
export interface PlanRow {
  id: string;
  pid: number;
  comm: string;
  cgroup: string;
  action: string;
  /** Where the mapping begins, and its name; null: several mappings. */
  mapping: { start: string; name: string } | null;
  huge_ranges: number;
  bytes: number;
  /** Empty if something would be done. */
  why_not: string;
}

/** `api/plan` */
export interface Plan {
  at_ms: number;
  mode: "live" | "recording";
  left_out: number;
  rows: PlanRow[];
}

/** `api/overview` */
export interface Overview {
  at_ms: number;
  window_ms: number;
  lost_snapshots: number;
  mode: "live" | "recording";
  range_ms: [number, number];
  host: Host;
  totals: Row;
  processes: ProcessRow[];
  cgroups: CgroupRow[];
  actions: ActionRow[];
  events: EventRow[];
}

export interface Span {
  start: string;
  end: string;
}

export interface Mapping extends Span {
  name: string;
  perms: string;
}

export interface HistoryPoint {
  at_ms: number;
  wss_10s: number;
  wss_1m: number;
  wss_10m: number;
  wss_1h: number;
  resident: number;
}

/** `api/process/ID` */
export interface ProcessDetail {
  id: string;
  pid: number;
  comm: string;
  cgroup: string;
  range_ms: [number, number];
  /** It is not in the newest snapshot, or ended in it. */
  ended: boolean;
  layout: string;
  spans: Span[];
  mappings: Mapping[];
  temperature: { interval_ms: number | null; bytes: number }[];
  idle: { idle_ms: number | null; bytes: number }[];
  history: HistoryPoint[];
}

export interface CellRegion extends Span {
  resident_bytes: number;
  huge_bytes: number;
  hot_bytes: number;
  /** The most that was hot at one moment, where older snapshots have become one. */
  peak_hot_bytes: number;
  unmeasured_bytes: number;
  estimated_bytes: number;
  interval_ms: number | null;
  rate_hz: number;
  idle_ms: number;
  age_ms: number;
}

/** `api/cell/ID` */
export interface CellAnswer {
  at_ms: number;
  region: CellRegion | null;
  mapping: Mapping | null;
}

/** Data of the `snapshot` event of `api/live`. */
export interface SnapshotEvent {
  at_ms: number;
  ids: string[];
}

/** What the colours of a heat map stand for. */
export type Show = "hot" | "peak" | "interval" | "idle";
export const SHOWS: readonly Show[] = ["hot", "peak", "interval", "idle"];
