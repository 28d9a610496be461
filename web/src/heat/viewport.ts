// What part of a map is shown: a stretch of time and a stretch of the packed address axis. Pure: every function takes
// a viewport and returns another, clamped to what there is.

export interface Viewport {
  fromMs: number;
  toMs: number;
  lo: number;
  hi: number;
  /** The right edge stays at the newest snapshot. */
  follow: boolean;
}

/** What there is. */
export interface Bounds {
  firstMs: number;
  lastMs: number;
  total: number;
  windowMs: number;
  live: boolean;
}

/** Shown at first, and after a reset, of what is live. */
const FIRST_SPAN_MS = 600_000;
/** No closer than this many snapshots, and this many pages of 4 KiB. */
const MIN_WINDOWS = 8;
const MIN_BYTES = 16 * 4096;

function minSpanMs(bounds: Bounds): number {
  return Math.max(1, MIN_WINDOWS * bounds.windowMs);
}

/** All addresses, and the last ten minutes of what is live or all of a recording. */
export function whole(bounds: Bounds): Viewport {
  const held = Math.max(bounds.lastMs - bounds.firstMs, minSpanMs(bounds));
  const span = bounds.live ? Math.min(held, FIRST_SPAN_MS) : held;
  return { fromMs: bounds.lastMs - span, toMs: bounds.lastMs, lo: 0, hi: bounds.total, follow: bounds.live };
}

function clampRange(lo: number, hi: number, first: number, last: number, minSpan: number): [number, number] {
  const room = Math.max(last - first, minSpan);
  const span = Math.min(Math.max(hi - lo, Math.min(minSpan, room)), room);
  const start = Math.min(Math.max((lo + hi - span) / 2, last - room), last - span);
  return [start, start + span];
}

/** The nearest viewport within the bounds. */
export function clamp(view: Viewport, bounds: Bounds): Viewport {
  const [fromMs, toMs] = clampRange(view.fromMs, view.toMs, bounds.firstMs, bounds.lastMs, minSpanMs(bounds));
  const [lo, hi] = clampRange(view.lo, view.hi, 0, bounds.total, Math.min(MIN_BYTES, bounds.total));
  return { fromMs, toMs, lo, hi, follow: view.follow };
}

/** Follows the newest snapshot, if it should. */
export function advance(view: Viewport, bounds: Bounds): Viewport {
  if (!view.follow) return clamp(view, bounds);
  const span = view.toMs - view.fromMs;
  return clamp({ ...view, fromMs: bounds.lastMs - span, toMs: bounds.lastMs }, bounds);
}

/**
 * Zooms about a point, given as fractions of the plot: a factor of 0.5 shows half as much. While the newest snapshot is
 * followed, it stays at the right edge.
 */
export function zoom(view: Viewport, bounds: Bounds, at: [number, number], factors: [number, number]): Viewport {
  const [x, y] = [view.follow ? 1 : at[0], at[1]];
  const [time, address] = [view.toMs - view.fromMs, view.hi - view.lo];
  const [t, a] = [
    Math.min(Math.max(time * factors[0], minSpanMs(bounds)), Math.max(bounds.lastMs - bounds.firstMs, minSpanMs(bounds))),
    Math.min(Math.max(address * factors[1], Math.min(MIN_BYTES, bounds.total)), bounds.total),
  ];
  const fromMs = view.fromMs + x * (time - t);
  const lo = view.lo + y * (address - a);
  return clamp({ fromMs, toMs: fromMs + t, lo, hi: lo + a, follow: view.follow }, bounds);
}

/** Moves by fractions of the plot. Moving back in time ends following, and reaching the newest snapshot begins it. */
export function pan(view: Viewport, bounds: Bounds, by: [number, number]): Viewport {
  const [t, a] = [by[0] * (view.toMs - view.fromMs), by[1] * (view.hi - view.lo)];
  const moved = { ...view, fromMs: view.fromMs + t, toMs: view.toMs + t, lo: view.lo + a, hi: view.hi + a };
  const follow = by[0] === 0 ? view.follow : bounds.live && moved.toMs >= bounds.lastMs;
  const back = bounds.lastMs - bounds.firstMs > view.toMs - view.fromMs;
  return clamp({ ...moved, follow: follow || (view.follow && !back) }, bounds);
}
