// A made-up process whose heat is known at every time and address, and the answers of the API about it.
//
// Heat is constant in blocks of 32 MiB and, but for a hot block that wanders, in time. So the value of a cell does not
// depend on the zoom, as long as the cell lies within a block, and a test can work out the colour of a pixel.

export const MIB = 2 ** 20;
export const FIRST_MS = 1_790_000_000_000;
export const WINDOW_MS = 1000;
/** A stay of the block that wanders. */
export const STAY = 60;
export const BLOCK = 32 * MIB;

/** start, size, name, permissions; in address order. Neighbours belong to one span. */
const MAPPINGS = [
  [0x55d000000000n, 16, "/usr/bin/redis-server", "r-xp"],
  [0x55d001000000n, 16, "/usr/bin/redis-server", "rw-p"],
  [0x560010000000n, 512, "[heap]", "rw-p"],
  [0x7f1000000000n, 256, "", "rw-p"],
  [0x7f1040000000n, 32, "/usr/lib/x86_64-linux-gnu/libc.so.6", "r-xp"],
  [0x7ffc00000000n, 32, "[stack]", "rw-p"],
];
/** What a change of layout adds, before all others. */
const ADDED = [0x10000000000n, 64, "/dev/shm/added", "rw-s"];

const SHARES = [0, 0.003, 0.01, 0.05, 0.2, 0.5, 0.8];

/**
 * The heat of a block of the original layout in snapshot `n`: null if nothing is resident, "unmeasured", or hot share,
 * access interval and idle time.
 */
export function heatOf(block, n) {
  const anon = block >= 17 && block < 25;
  if (anon && n < 200) return null;
  if (n < 5 || block === 26) return "unmeasured";
  if (block === 1) return { share: 1, intervalMs: 20, idleMs: 50 };
  if (block >= 2 && block < 10) {
    const hot = (block - 2) % 8 === Math.floor(n / STAY) % 8;
    return hot ? { share: 1, intervalMs: 5, idleMs: 100 } : { share: 0, intervalMs: 30_000, idleMs: 20_000 };
  }
  if (block >= 10 && block < 17) return { share: SHARES[block - 10], intervalMs: 3000, idleMs: 4000 };
  if (anon) return { share: 0, intervalMs: 1_200_000, idleMs: 1_200_000 };
  return { share: 0.1, intervalMs: 200, idleMs: 1500 };
}

/** Even values from 2 to 254, for a heat from 0 to 1 that is measured. */
const onScale = (heat) => 2 + 2 * Math.round(126 * Math.min(1, Math.max(0, heat)));
const onLog = (ms, hot, cold) => onScale(Math.log(cold / ms) / Math.log(cold / hot));

/** The value of a tile for a heat, as the API has it. */
export function valueOf(show, heat) {
  if (heat === null) return 0;
  if (heat === "unmeasured") return 1;
  if (show === "hot" || show === "peak") return heat.share === 0 ? 2 : onScale((Math.log10(heat.share) + 3) / 3);
  return show === "interval" ? onLog(heat.intervalMs, 1, 3_600_000) : onLog(heat.idleMs, 1000, 3_600_000);
}

/** A generator of numbers from 0 to 1: the same list of processes each time. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function rowOf(resident, hot, random, points) {
  const rest = resident - hot;
  const classes = { hot, warm: Math.floor(rest * 0.2), cold: Math.floor(rest * 0.15), idle: 0, unmeasured: Math.floor(rest * 0.05) };
  classes.idle = resident - hot - classes.warm - classes.cold - classes.unmeasured;
  const wss = { "10s": hot, "1m": hot + classes.warm, "10m": hot + classes.warm + classes.cold, "1h": Math.floor(resident * 0.9) };
  const history = Array.from({ length: points }, () => Math.floor(wss["1m"] * (0.7 + 0.3 * random())));
  return { resident_bytes: resident, huge_bytes: Math.floor(hot / 3), hot_small_bytes: hot - Math.floor(hot / 3), estimated_bytes: Math.floor(resident * 0.01), swapped_bytes: 0, classes, wss, wss_history: history };
}

const NAMES = ["postgres", "java", "nginx", "node", "memcached", "python3", "sshd", "containerd", "kubelet", "systemd-journal"];
const CGROUPS = [
  { path: "/system.slice/redis.service", unit: "redis.service", pod: null, container: null },
  { path: "/system.slice/postgresql.service", unit: "postgresql.service", pod: null, container: null },
  {
    path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b7c.slice/cri-containerd-9f86d081884c7d65.scope",
    unit: null,
    pod: "1b7c2e66-90a1-4f5d-8c2e-1a2b3c4d5e6f",
    container: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
  },
  { path: "/user.slice/user-1000.slice/session-2.scope", unit: "session-2.scope", pod: null, container: null },
];

export class Model {
  constructor({ snapshots = 600, mode = "live", processes = 40 } = {}) {
    this.snapshots = snapshots;
    this.mode = mode;
    this.processes = processes;
    this.shifted = false;
    this.ended = false;
    this.id = "812-4711";
  }

  get newestMs() {
    return FIRST_MS + (this.snapshots - 1) * WINDOW_MS;
  }

  get layout() {
    return this.shifted ? "layout-2" : "layout-1";
  }

  mappings() {
    return this.shifted ? [ADDED, ...MAPPINGS] : MAPPINGS;
  }

  spans() {
    const spans = [];
    for (const [start, mib] of this.mappings()) {
      const end = start + BigInt(mib * MIB);
      if (spans.at(-1)?.end === start) spans.at(-1).end = end;
      else spans.push({ start, end });
    }
    return spans;
  }

  total() {
    return this.mappings().reduce((sum, [, mib]) => sum + mib * MIB, 0);
  }

  /** The packed position of an address of a mapping. */
  packed(address) {
    let at = 0;
    for (const { start, end } of this.spans()) {
      if (address < end) return at + Number(address - start);
      at += Number(end - start);
    }
    throw new Error(`0x${address.toString(16)} is not mapped`);
  }

  /** The heat at a packed position. What was added is not resident. */
  heatAt(packed, n) {
    const original = this.shifted ? packed - ADDED[1] * MIB : packed;
    if (original < 0 || packed >= this.total() || n < 0 || n >= this.snapshots) return null;
    return heatOf(Math.floor(original / BLOCK), n);
  }

  /** The newest snapshot whose window meets a column. */
  snapshotIn(fromMs, toMs) {
    const last = Math.min(this.snapshots - 1, Math.ceil((toMs - FIRST_MS) / WINDOW_MS));
    const n = last >= 0 && FIRST_MS + (last - 1) * WINDOW_MS < toMs ? last : last - 1;
    return FIRST_MS + n * WINDOW_MS > fromMs ? n : -1;
  }

  tile({ show, from, to, lo, hi, w, h }) {
    const values = new Uint8Array(w * h);
    for (let x = 0; x < w; x += 1) {
      const n = this.snapshotIn(from + ((to - from) * x) / w, from + ((to - from) * (x + 1)) / w);
      for (let y = 0; y < h; y += 1) {
        const [first, last] = [lo + ((hi - lo) * y) / h, lo + ((hi - lo) * (y + 1)) / h];
        values[x * h + y] = n < 0 ? 0 : valueOf(show, this.mean(first, last, n));
      }
    }
    return values;
  }

  /** The mean heat of a range: of shares by memory, of times on the logarithmic scale. */
  mean(lo, hi, n) {
    const heats = [];
    for (let at = lo; at < hi; at = (Math.floor(at / BLOCK) + 1) * BLOCK) {
      const size = Math.min(hi, (Math.floor(at / BLOCK) + 1) * BLOCK) - at;
      heats.push({ heat: this.heatAt(at, n), size });
    }
    const measured = heats.filter(({ heat }) => heat !== null && heat !== "unmeasured");
    if (measured.length === 0) return heats.some(({ heat }) => heat === "unmeasured") ? "unmeasured" : null;
    const total = measured.reduce((sum, { size }) => sum + size, 0);
    const of = (pick) => measured.reduce((sum, { heat, size }) => sum + pick(heat) * size, 0) / total;
    return { share: of((h) => h.share), intervalMs: Math.exp(of((h) => Math.log(h.intervalMs))), idleMs: Math.exp(of((h) => Math.log(h.idleMs))) };
  }

  cell(at, address) {
    const n = Math.min(this.snapshots - 1, Math.max(0, Math.ceil((at - FIRST_MS) / WINDOW_MS)));
    const atMs = FIRST_MS + n * WINDOW_MS;
    const mapping = this.mappings().find(([start, mib]) => address >= start && address < start + BigInt(mib * MIB));
    if (!mapping) return { at_ms: atMs, region: null, mapping: null };
    const heat = this.heatAt(this.packed(address), n);
    const shown = { start: mapping[0].toString(16), end: (mapping[0] + BigInt(mapping[1] * MIB)).toString(16), name: mapping[2], perms: mapping[3] };
    return { at_ms: atMs, region: heat === null ? null : this.region(shown, heat), mapping: shown };
  }

  region({ start, end }, heat) {
    const known = heat !== "unmeasured";
    return {
      start,
      end,
      resident_bytes: BLOCK,
      huge_bytes: BLOCK / 2,
      hot_bytes: known ? heat.share * BLOCK : 0,
      peak_hot_bytes: known ? (heat.peak ?? heat.share) * BLOCK : 0,
      unmeasured_bytes: known ? 0 : BLOCK,
      estimated_bytes: 0,
      interval_ms: known ? heat.intervalMs : null,
      rate_hz: known ? 1000 / heat.intervalMs : 0,
      idle_ms: known ? heat.idleMs : 0,
      age_ms: 42_000,
    };
  }

  detail() {
    const text = ({ start, end }) => ({ start: start.toString(16), end: end.toString(16) });
    const octaves = (first, count, name, peak) => [
      ...Array.from({ length: count }, (_, i) => ({ [name]: first * 2 ** i, bytes: Math.floor(MIB * 300 * Math.exp(-((i - peak) ** 2) / 6)) })),
      { [name]: null, bytes: BLOCK },
    ];
    const step = Math.max(1, Math.ceil(this.snapshots / 600));
    const history = [];
    for (let n = 0; n < this.snapshots; n += step) {
      const wave = 40 * MIB * Math.sin(n / 25);
      history.push({
        at_ms: FIRST_MS + n * WINDOW_MS,
        wss_10s: 120 * MIB + wave,
        wss_1m: 180 * MIB + wave,
        wss_10m: 320 * MIB,
        wss_1h: 400 * MIB,
        resident: (n < 200 ? 608 : 864) * MIB,
      });
    }
    return {
      id: this.id,
      pid: 812,
      comm: "redis-server",
      cgroup: CGROUPS[0].path,
      range_ms: [FIRST_MS, this.newestMs],
      ended: this.ended,
      layout: this.layout,
      spans: this.spans().map(text),
      mappings: this.mappings().map(([start, mib, name, perms]) => ({ ...text({ start, end: start + BigInt(mib * MIB) }), name, perms })),
      temperature: octaves(1, 22, "interval_ms", 9),
      idle: octaves(1000, 12, "idle_ms", 4),
      history,
    };
  }

  processRows() {
    const random = generator(20_260_821);
    const points = Math.min(60, this.snapshots);
    const first = { id: this.id, pid: 812, comm: "redis-server", cgroup: CGROUPS[0].path, sampled: false, exited: false, ...rowOf(864 * MIB, 96 * MIB, random, points) };
    const others = Array.from({ length: this.processes - 1 }, (_, i) => {
      const resident = Math.floor(MIB * 2 ** (10 * random()));
      const cgroup = CGROUPS[1 + (i % 3)].path;
      const state = { sampled: i % 7 === 3, exited: i % 11 === 5 };
      return { id: `${1000 + i}-${90_000 + i}`, pid: 1000 + i, comm: NAMES[i % NAMES.length], cgroup, ...state, ...rowOf(resident, Math.floor(resident * random() * 0.6), random, points) };
    });
    return [first, ...others];
  }

  plan() {
    const [first, second] = this.processRows();
    const heap = { start: "555500000000", name: "[heap]" };
    const row = (process, action, mapping, ranges, bytes, why_not) => {
      const { id, pid, comm, cgroup } = process;
      return { id, pid, comm, cgroup, action, mapping, huge_ranges: ranges, bytes, why_not };
    };
    const rows = [
      row(first, "collapse", heap, 48, 96 * MIB, ""),
      row(first, "page-out", null, 7, 3 * MIB, ""),
      row(first, "collapse", null, 80, 0, "accessed too seldom"),
      row(second, "page-out", null, 0, 0, "the process runs a KVM guest"),
    ];
    return { at_ms: this.newestMs, mode: this.mode, left_out: 0, rows: this.mode === "recording" ? [] : rows };
  }

  overview() {
    const processes = this.processRows();
    const random = generator(7);
    const sum = (rows, pick) => rows.reduce((total, row) => total + pick(row), 0);
    const joined = (rows) => rowOf(sum(rows, (r) => r.resident_bytes), sum(rows, (r) => r.classes.hot), random, 60);
    const cgroups = CGROUPS.map(({ path, unit, pod, container }) => {
      const rows = processes.filter((process) => process.cgroup === path);
      const memory = path.startsWith("/user") ? null : { anon: 1, file: 2, slab: 3, swap: 0, limit: pod ? 4096 * MIB : null };
      return { path, processes: rows.length, pod_uid: pod, container_id: container, unit, memory, ...joined(rows) };
    });
    return {
      at_ms: this.newestMs,
      window_ms: WINDOW_MS,
      lost_snapshots: 0,
      mode: this.mode,
      range_ms: [FIRST_MS, this.newestMs],
      host: {
        name: "example-host",
        kernel: "6.12.48",
        cpu: "Example CPU 9000 @ 2.60GHz",
        cpus: 64,
        memory_bytes: 256 * 1024 * MIB,
        version: "0.1.0",
        source: "page-table",
        source_note: "Accessed bits of page tables, read by a BPF program. Memory of devices is not seen.",
        monitor_cpu_pct: 0.82,
        slowdown_pct: 0.34,
      },
      totals: joined(processes),
      processes,
      cgroups,
      actions: [
        { action: "collapse", result: "done", huge_ranges: 1204, bytes: 1204 * 2 * MIB },
        { action: "collapse", result: "not enough free memory", huge_ranges: 37, bytes: 0 },
        { action: "page out", result: "done", huge_ranges: 410, bytes: 633 * MIB },
      ],
      events: [
        { at_ms: FIRST_MS, text: "watching 40 processes" },
        { at_ms: this.newestMs - 20_000, text: "redis-server 812: 256.0 MiB appeared" },
      ],
    };
  }
}
