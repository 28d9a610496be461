// Colours from cold to hot: the ramp of `isotherm_view::heatmap::color`, so that a PNG of the command line and this
// page can be compared. It resembles matplotlib's "inferno". Lightness rises all the way, so the map can be read in
// grey and by colour-blind readers; a unit test checks that with simulated protanopia, deuteranopia and tritanopia.
//
// The plot has a dark background in the light theme too: the hot end is nearly white, and a map on white would hide it.

import type { Show } from "./types";

export type Rgb = readonly [number, number, number];

/** From cold to hot, at equal distances. */
const CONTROL: readonly Rgb[] = [
  [44, 20, 84],
  [92, 22, 110],
  [150, 38, 103],
  [203, 65, 73],
  [238, 108, 36],
  [250, 170, 40],
  [252, 250, 176],
];

/** Behind the cells: nothing is mapped there. */
export const PLOT_COLOR: Rgb = [16, 16, 20];
/** Memory of which nothing is known: a grey that is not on the ramp. */
export const UNMEASURED_COLOR: Rgb = [96, 104, 112];

/**
 * Values of a cell of a tile. The scale is the even ones from `COLDEST` to `HOTTEST`; the odd one above each is the same heat where most of it
 * is estimated.
 */
export const ABSENT = 0;
export const UNMEASURED = 1;
export const COLDEST = 2;
export const HOTTEST = 254;

/** Where the ramp starts for shares: only cells without hot memory have the darkest colour. */
const SHARE_FLOOR = 0.2;
/** Where it ends for idle times of a second. The brightest colour is for less. */
const IDLE_CEILING = 0.6;

/** The colour of `heat`, from 0 (cold) to 1 (hot). */
export function heatColor(heat: number): Rgb {
  const position = Math.min(1, Math.max(0, heat)) * (CONTROL.length - 1);
  const below = Math.min(Math.floor(position), CONTROL.length - 2);
  const a = CONTROL[below] as Rgb;
  const b = CONTROL[below + 1] as Rgb;
  const t = position - below;
  const mix = (i: 0 | 1 | 2): number => Math.round(a[i] + (b[i] - a[i]) * t);
  return [mix(0), mix(1), mix(2)];
}

/** Where a value is on its scale, from 0 for the coldest to 1 for the hottest. */
export function position(value: number): number {
  return (value - (value % 2) - COLDEST) / (HOTTEST - COLDEST);
}

/** Whether most of what a value stands for is estimated. */
function isEstimated(value: number): boolean {
  return value > COLDEST && value % 2 === 1;
}

/** Half of the way to grey, as the pictures of the command line have it: it is not known for certain. */
function paler(color: Rgb): Rgb {
  const half = (i: 0 | 1 | 2): number => Math.floor((color[i] + UNMEASURED_COLOR[i]) / 2);
  return [half(0), half(1), half(2)];
}

/** The colour at a place of the scale of `show`, from 0 to 1. The ends may be set off. */
export function rampColor(show: Show, at: number): Rgb {
  switch (show) {
    case "hot":
    case "peak":
      return heatColor(at <= 0 ? 0 : SHARE_FLOOR + (1 - SHARE_FLOOR) * at);
    case "interval":
      return heatColor(at);
    case "idle":
      return heatColor(at >= 1 ? 1 : IDLE_CEILING * at);
  }
}

/** The colour of a cell's value; null if nothing is mapped there. */
export function valueColor(show: Show, value: number): Rgb | null {
  if (value === ABSENT) return null;
  if (value === UNMEASURED) return UNMEASURED_COLOR;
  const color = rampColor(show, position(value));
  return isEstimated(value) ? paler(color) : color;
}

/** The colours of all values as the 32-bit words of a canvas's image data. Absent cells are transparent. */
export function colorTable(show: Show): Uint32Array {
  const octets = new Uint8ClampedArray(256 * 4);
  for (let value = 1; value < 256; value += 1) {
    const color = valueColor(show, value);
    if (color) octets.set([...color, 255], value * 4);
  }
  return new Uint32Array(octets.buffer);
}

/** As CSS has it. */
export function css(color: Rgb): string {
  return `rgb(${color[0]}, ${color[1]}, ${color[2]})`;
}
