// Draws a map into any canvas: the one on the screen and the one that becomes a PNG.
//
// Tiles lie on whole pixels of the screen. At fractions the browser would mix the colours of neighbours, and show seams
// between tiles. Text and lines are in CSS pixels, scaled.

import { clock, mappingName } from "../format";
import { css, PLOT_COLOR } from "../palette";
import type { AddressAxis, NamedRun } from "./axis";
import { TILE_CELLS } from "./grid";
import type { Tile } from "./tiles";
import type { Viewport } from "./viewport";

/** In CSS pixels. */
export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Theme {
  text: string;
  muted: string;
  line: string;
}

export interface Scene {
  /** Pixels of the screen for each CSS pixel. */
  scale: number;
  plot: Rect;
  /** Width of the names at the right. */
  names: number;
  /** Whether there is room for addresses at the left. */
  addresses: boolean;
  view: Viewport;
  axis: AddressAxis;
  runs: readonly NamedRun[];
  tiles: readonly Tile[];
  /** Whether these are all. */
  complete: boolean;
  /** An earlier picture, shown until all tiles are there. */
  ghost: Ghost | null;
  theme: Theme;
}

export interface Ghost {
  canvas: HTMLCanvasElement;
  view: Viewport;
}

const FONT = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const LINE_HEIGHT = 14;
const ADDRESS_DISTANCE = 64;
const TIME_DISTANCE = 84;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const TIME_STEPS_MS = [
  ...[0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12, 24].map((n) => n * HOUR),
];

/** The plot within a canvas of this size, with room for what is around it. */
export function layOut(width: number, height: number): Pick<Scene, "plot" | "names" | "addresses"> {
  const wide = width >= 600;
  const [left, names] = wide ? [96, 148] : [0, 92];
  const plot = { x: left, y: 1, width: Math.max(1, width - left - names), height: Math.max(1, height - 22) };
  return { plot, names, addresses: wide };
}

export function paint(context: CanvasRenderingContext2D, scene: Scene): void {
  const { scale, plot } = scene;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.save();
  context.beginPath();
  context.rect(plot.x * scale, plot.y * scale, Math.round(plot.width * scale), Math.round(plot.height * scale));
  context.clip();
  context.fillStyle = css(PLOT_COLOR);
  context.fill();
  context.imageSmoothingEnabled = false;
  if (scene.ghost) paintGhost(context, scene, scene.ghost);
  for (const tile of scene.tiles) paintTile(context, scene, tile);
  context.restore();
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = FONT;
  context.textBaseline = "middle";
  paintJoints(context, scene);
  paintTimes(context, scene);
  if (scene.addresses) paintAddresses(context, scene);
  paintNames(context, scene);
}

/** Pixels of the screen from the left of the canvas. */
function xOf(scene: Scene, ms: number): number {
  const { plot, view, scale } = scene;
  return plot.x * scale + ((ms - view.fromMs) / (view.toMs - view.fromMs)) * plot.width * scale;
}

function yOf(scene: Scene, packed: number): number {
  const { plot, view, scale } = scene;
  return plot.y * scale + ((packed - view.lo) / (view.hi - view.lo)) * plot.height * scale;
}

function paintTile(context: CanvasRenderingContext2D, scene: Scene, tile: Tile): void {
  const { fromMs, columnMs, lo, rowBytes } = tile.spec;
  const [x0, x1] = [fromMs, fromMs + TILE_CELLS * columnMs].map((ms) => Math.round(xOf(scene, ms))) as [number, number];
  const [y0, y1] = [lo, lo + tile.canvas.height * rowBytes].map((at) => Math.round(yOf(scene, at))) as [number, number];
  // An older picture must not show through where nothing is mapped.
  context.fillRect(x0, y0, x1 - x0, y1 - y0);
  context.drawImage(tile.canvas, x0, y0, x1 - x0, y1 - y0);
}

function paintGhost(context: CanvasRenderingContext2D, scene: Scene, ghost: Ghost): void {
  const [x0, x1] = [xOf(scene, ghost.view.fromMs), xOf(scene, ghost.view.toMs)];
  const [y0, y1] = [yOf(scene, ghost.view.lo), yOf(scene, ghost.view.hi)];
  context.drawImage(ghost.canvas, x0, y0, x1 - x0, y1 - y0);
}

/** A faint line wherever addresses jump. */
function paintJoints(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, view, scale } = scene;
  context.strokeStyle = "rgba(255, 255, 255, 0.35)";
  context.setLineDash([2, 4]);
  context.lineWidth = 1;
  context.beginPath();
  let last = -Infinity;
  for (const joint of scene.axis.joints()) {
    const y = Math.round(yOf(scene, joint) / scale) + 0.5;
    // Many small spans would cover the map with lines.
    if (joint <= view.lo || joint >= view.hi || y - last < 6) continue;
    last = y;
    context.moveTo(plot.x, y);
    context.lineTo(plot.x + plot.width, y);
  }
  context.stroke();
  context.setLineDash([]);
}

function paintTimes(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, view, scale } = scene;
  const perPixel = (view.toMs - view.fromMs) / plot.width;
  const step = TIME_STEPS_MS.find((ms) => ms >= perPixel * TIME_DISTANCE) ?? 24 * HOUR;
  const bottom = plot.y + plot.height;
  context.strokeStyle = scene.theme.line;
  context.fillStyle = scene.theme.muted;
  context.textAlign = "center";
  for (let ms = Math.ceil(view.fromMs / step) * step; ms <= view.toMs; ms += step) {
    const x = xOf(scene, ms) / scale;
    const label = step < SECOND ? new Date(ms).toISOString().slice(11, 21) : clock(ms);
    const half = context.measureText(label).width / 2;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, bottom);
    context.lineTo(Math.round(x) + 0.5, bottom + 4);
    context.stroke();
    const place = Math.min(Math.max(x, plot.x + half), plot.x + plot.width - half);
    if (Math.abs(place - x) < 12 || scene.addresses) context.fillText(label, place, bottom + 13);
  }
  // At the right, where names end: the zone of all times.
  context.textAlign = "left";
  context.fillText("UTC", plot.x + plot.width + 8, bottom + 13);
}

function paintAddresses(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, view, axis, theme } = scene;
  const count = Math.max(1, Math.floor(plot.height / ADDRESS_DISTANCE));
  context.fillStyle = theme.muted;
  context.strokeStyle = theme.line;
  context.textAlign = "right";
  for (let i = 0; i <= count; i += 1) {
    const packed = view.lo + ((view.hi - view.lo) * i) / count;
    // The last address that is shown, and not the first of what follows.
    const address = axis.toAddress(i === count ? packed - 1 : packed) & ~0xfffn;
    const y = plot.y + (plot.height * i) / count;
    context.fillText(address.toString(16), plot.x - 8, Math.min(Math.max(y, plot.y + 6), plot.y + plot.height - 6));
    context.beginPath();
    context.moveTo(plot.x - 4, Math.round(y) + 0.5);
    context.lineTo(plot.x, Math.round(y) + 0.5);
    context.stroke();
  }
}

function paintNames(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, view, scale, names, theme } = scene;
  const left = plot.x + plot.width;
  context.textAlign = "left";
  let free = plot.y;
  for (const run of scene.runs) {
    if (run.hi <= view.lo || run.lo >= view.hi) continue;
    const top = Math.max(plot.y, yOf(scene, run.lo) / scale);
    const bottom = Math.min(plot.y + plot.height, yOf(scene, run.hi) / scale);
    if (bottom - top >= 3) {
      context.fillStyle = theme.line;
      context.fillRect(left + 3, top + 0.5, 2, bottom - top - 1);
    }
    const y = (top + bottom) / 2;
    // Where mappings are narrower than a line of text, the ones that fit are named.
    if (bottom - top < 4 || y - LINE_HEIGHT / 2 < free - 1 || y + LINE_HEIGHT / 2 > plot.y + plot.height + 8) continue;
    context.fillStyle = theme.text;
    context.fillText(fit(context, shortName(run.name), names - 12), left + 10, y);
    free = y + LINE_HEIGHT / 2;
  }
}

/** The last part of a path, which is the most specific. */
export function shortName(name: string): string {
  const shown = mappingName(name);
  return shown.startsWith("/") ? shown.slice(shown.lastIndexOf("/") + 1) || shown : shown;
}

function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  // The font is monospaced.
  const room = Math.max(1, Math.floor(width / context.measureText("m").width) - 1);
  return `${text.slice(0, room)}\u2026`;
}
