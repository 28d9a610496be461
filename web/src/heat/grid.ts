// Which tiles show a viewport. Pure.
//
// A tile is a square of cells whose column width (ms) and row height (bytes) are powers of two, at multiples of its own
// size. So a tile is the same for every viewport of about the same zoom, and can be kept. Cells are at least one pixel
// of the screen: smaller ones would be skipped when drawn, and a single hot row would vanish.

import type { Show } from "../types";
import type { Viewport } from "./viewport";

/** Cells along each side of a tile. */
export const TILE_CELLS = 256;
/** A page: no row is smaller. */
const MIN_ROW_BYTES = 4096;

/** Sizes of a cell. */
export interface Zoom {
  columnMs: number;
  rowBytes: number;
}

export interface TileSpec extends Zoom {
  show: Show;
  /** Left edge (ms) and upper edge (packed bytes). */
  fromMs: number;
  lo: number;
}

function powerOfTwo(atLeast: number, min: number): number {
  return Math.max(min, 2 ** Math.ceil(Math.log2(Math.max(atLeast, 1)) - 1e-9));
}

/** The cell sizes for a viewport on a plot of `width` by `height` pixels of the screen. */
export function zoomFor(view: Viewport, width: number, height: number): Zoom {
  return {
    columnMs: powerOfTwo((view.toMs - view.fromMs) / Math.max(1, width), 1),
    rowBytes: powerOfTwo((view.hi - view.lo) / Math.max(1, height), MIN_ROW_BYTES),
  };
}

/** The tiles that cover a viewport, newest first: that is what readers wait for. */
export function tilesFor(view: Viewport, show: Show, zoom: Zoom): TileSpec[] {
  const tiles: TileSpec[] = [];
  const [width, height] = [zoom.columnMs * TILE_CELLS, zoom.rowBytes * TILE_CELLS];
  for (let x = Math.ceil(view.toMs / width) - 1; x >= Math.floor(view.fromMs / width); x -= 1) {
    for (let y = Math.floor(view.lo / height); y * height < view.hi; y += 1) {
      tiles.push({ show, ...zoom, fromMs: x * width, lo: y * height });
    }
  }
  return tiles;
}

export function tileKey(tile: TileSpec): string {
  return `${tile.show} ${tile.columnMs} ${tile.rowBytes} ${tile.fromMs} ${tile.lo}`;
}

/** Rows of a tile that the axis has: the last tile of a column ends with it. */
export function tileRows(tile: TileSpec, total: number): number {
  return Math.max(0, Math.min(TILE_CELLS, Math.ceil((total - tile.lo) / tile.rowBytes)));
}
