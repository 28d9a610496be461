// The map in one line of text: which mapping is the hottest in the newest snapshot, and how much of it is hot.
//
// The API has no figure by mapping. A single column of cells finds the candidates, and then the best one is read as a
// cell of its own, which is exact up to the scale of tiles. Mappings smaller than a cell of that column do not compete:
// their cell holds neighbours as well.

import { ApiError, isAbort, tile } from "../api";
import { mappingName, share } from "../format";
import { shareOf } from "../scale";
import { h, setText } from "../ui/dom";
import type { AddressAxis, NamedRun } from "./axis";

const ROWS = 2048;

/** It is two requests, so not for each snapshot. */
const REFRESH_MS = 10_000;

export interface SummaryRequest {
  layout: string;
  axis: AddressAxis;
  runs: readonly NamedRun[];
  newestMs: number;
  windowMs: number;
}

/** Mean of the cells of a run, in share of measured memory; null if nothing in it was measured. */
export function meanShare(values: Uint8Array, run: NamedRun, total: number): number | null {
  const first = Math.ceil((run.lo / total) * values.length);
  const end = Math.floor((run.hi / total) * values.length);
  const measured = [...values.subarray(first, end)].filter((value) => value >= 2);
  if (measured.length === 0) return null;
  return measured.reduce((sum, value) => sum + shareOf(value), 0) / measured.length;
}

async function summary(id: string, wanted: SummaryRequest, signal: AbortSignal): Promise<string> {
  const { layout, axis, runs, newestMs, windowMs } = wanted;
  const column = { layout, show: "hot", fromMs: newestMs - windowMs, toMs: newestMs, columns: 1 } as const;
  const rows = Math.max(1, Math.min(ROWS, Math.floor(axis.total / 4096)));
  const { values } = await tile(id, { ...column, lo: 0, hi: axis.total, rows }, signal);
  let best: { run: NamedRun; mean: number } | null = null;
  for (const run of runs) {
    const mean = meanShare(values, run, axis.total);
    if (mean !== null && (best === null || mean > best.mean)) best = { run, mean };
  }
  if (!best) return "Nothing has been measured yet.";
  const exact = await tile(id, { ...column, lo: best.run.lo, hi: best.run.hi, rows: 1 }, signal);
  const hot = shareOf(exact.values[0] ?? 0);
  if (hot === 0) return "No mapping has hot memory in the newest snapshot.";
  return `Hottest mapping in the newest snapshot: ${mappingName(best.run.name)}, ${share(hot)} of its measured memory is hot.`;
}

export class SummaryLine {
  readonly element = h("p", { class: "summary" }, ["Reading the newest snapshot ..."]);
  private wanted: SummaryRequest | null = null;
  private readMs = 0;
  private request: AbortController | null = null;
  private timer = 0;

  constructor(
    private readonly id: string,
    private readonly failed: (error: ApiError) => void,
  ) {}

  set(wanted: SummaryRequest): void {
    this.wanted = wanted;
    if (this.timer === 0 && wanted.newestMs > this.readMs && wanted.axis.total > 0) void this.read(wanted);
  }

  /** What it shows is of a time that is no longer held. */
  forget(): void {
    this.readMs = 0;
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.wanted = null;
    this.request?.abort();
  }

  private async read(wanted: SummaryRequest): Promise<void> {
    this.timer = window.setTimeout(() => this.again(), REFRESH_MS);
    this.readMs = wanted.newestMs;
    this.request = new AbortController();
    try {
      setText(this.element, await summary(this.id, wanted, this.request.signal));
    } catch (error) {
      if (isAbort(error)) return;
      this.readMs = 0;
      if (!(error instanceof ApiError)) throw error;
      // A stale layout is replaced, and read then.
      if (error.status !== 409) this.failed(error);
    }
  }

  private again(): void {
    this.timer = 0;
    if (this.wanted) this.set(this.wanted);
  }
}
