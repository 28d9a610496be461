// What the colours of a heat map stand for, in words: titles, legends, and the marks of the histograms' axes.
//
// The scales are those of the API: logarithmic and fixed, so that two maps can be compared.

import { duration, share } from "./format";
import { HOTTEST, position } from "./palette";
import type { Show } from "./types";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Powers of ten from the smallest share of the scale to 1. */
const SHARE_DECADES = 3;
/** The times at the hot and at the cold end. */
const ENDS_MS = { interval: [1, HOUR], idle: [SECOND, HOUR] } as const;

export interface Tick {
  /** From 0 (cold) to 1 (hot). */
  at: number;
  label: string;
}

export function scaleName(show: Show): string {
  return { hot: "Hot share", peak: "Peak", interval: "Access interval", idle: "Idle time" }[show];
}

/** One line that explains the colours. */
export function scaleTitle(show: Show): string {
  return `${meaning(show)}; paler: estimated`;
}

function meaning(show: Show): string {
  switch (show) {
    case "hot":
      return "share of the cell's measured memory that is hot (accessed at least every 1 s)";
    case "peak":
      return "largest share of the cell's measured memory that was hot in one snapshot of its time";
    case "interval":
      return "mean time between two accesses to a page of the cell";
    case "idle":
      return "idle for at least so long (mean time since an access to the cell was found)";
  }
}

/** Where a time is on a scale, from 0 (cold) to 1 (hot). */
export function timePosition(show: "interval" | "idle", ms: number): number {
  const [hot, cold] = ENDS_MS[show];
  const at = (Math.log(cold) - Math.log(Math.max(ms, Number.MIN_VALUE))) / (Math.log(cold) - Math.log(hot));
  return Math.min(1, Math.max(0, at));
}

/** Entries along the ramp, coldest first. */
export function ticks(show: Show): Tick[] {
  if (show === "hot" || show === "peak") {
    return [0.001, 0.01, 0.1, 1].map((part) => ({ at: 1 + Math.log10(part) / SHARE_DECADES, label: share(part) }));
  }
  const times = show === "interval" ? [HOUR, MINUTE, SECOND, 30, 1] : [HOUR, 10 * MINUTE, MINUTE, 10 * SECOND, SECOND];
  return times.map((ms) => ({ at: timePosition(show, ms), label: duration(ms) }));
}

/** Colours of the legend that are not on the ramp: a value of a tile, and what it means. */
export function extraTicks(show: Show): { value: number; label: string }[] {
  const unmeasured = { value: 1, label: "unmeasured" };
  switch (show) {
    case "hot":
    case "peak":
      return [{ value: 2, label: "none" }, unmeasured];
    case "interval":
      return [unmeasured];
    case "idle":
      return [{ value: HOTTEST, label: "< 1 s" }, unmeasured];
  }
}

/** The share that a value of a tile of `hot` or `peak` stands for. */
export function shareOf(value: number): number {
  const at = position(value);
  return at <= 0 ? 0 : 10 ** (SHARE_DECADES * (at - 1));
}
