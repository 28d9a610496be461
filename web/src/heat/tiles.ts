// Tiles of one process: fetched, coloured, kept, and extended when a snapshot arrives.
//
// A tile becomes a small canvas once, and each frame only scales it. What a tile lacks is read as whole columns: all of
// them at first, and later those since the last snapshot that it has. So a live map costs a few columns for each visible
// tile and snapshot.

import { ApiError, isAbort, tile as readTile } from "../api";
import { colorTable } from "../palette";
import type { Show } from "../types";
import { TILE_CELLS, tileKey, tileRows, type TileSpec } from "./grid";

/** 256 KiB each. */
const MAX_TILES = 96;
/** Browsers open at most six connections to a server, and one of them is the stream of events. */
const MAX_REQUESTS = 4;
const RETRY_MS = 2000;

export interface Tile {
  spec: TileSpec;
  canvas: HTMLCanvasElement;
  /** Snapshots up to here are in it; 0 before the first answer. */
  coveredMs: number;
  request: AbortController | null;
  retryAt: number;
}

export interface Layout {
  name: string;
  total: number;
  windowMs: number;
}

export interface TileEvents {
  changed: () => void;
  /** The layout is no longer the server's. */
  stale: () => void;
  failed: (error: ApiError) => void;
}

export class TileStore {
  private readonly tiles = new Map<string, Tile>();
  private readonly colors = new Map<Show, Uint32Array>();
  private wanted: Tile[] = [];
  private newestMs = 0;
  private requests = 0;
  private timer = 0;

  constructor(
    private readonly id: string,
    private layout: Layout,
    private readonly events: TileEvents,
  ) {}

  /** Forgets what was drawn for another layout. */
  reset(layout: Layout): void {
    if (layout.name === this.layout.name) return;
    this.clear();
    this.layout = layout;
  }

  /** Forgets all, and ends what is under way. */
  clear(): void {
    clearTimeout(this.timer);
    for (const tile of this.tiles.values()) tile.request?.abort();
    this.tiles.clear();
    this.wanted = [];
  }

  /** Fetches what these tiles lack up to the newest snapshot, and returns those that can be drawn. */
  want(specs: readonly TileSpec[], newestMs: number): Tile[] {
    this.newestMs = newestMs;
    const keys = new Set(specs.map(tileKey));
    for (const [key, tile] of this.tiles) if (!keys.has(key)) tile.request?.abort();
    this.wanted = specs.filter((spec) => tileRows(spec, this.layout.total) > 0).map((spec) => this.entry(spec));
    this.evict();
    this.fetchNext();
    return this.wanted.filter((tile) => tile.coveredMs > 0);
  }

  /** Whether a tile has all snapshots up to the newest that fall into it. */
  isCurrent(tile: Tile): boolean {
    return tile.coveredMs >= Math.min(this.newestMs, tile.spec.fromMs + TILE_CELLS * tile.spec.columnMs);
  }

  private entry(spec: TileSpec): Tile {
    const key = tileKey(spec);
    let tile = this.tiles.get(key);
    if (!tile) {
      const canvas = document.createElement("canvas");
      canvas.width = TILE_CELLS;
      canvas.height = tileRows(spec, this.layout.total);
      tile = { spec, canvas, coveredMs: 0, request: null, retryAt: 0 };
    }
    // Maps keep the order of insertion: the last used comes last.
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    return tile;
  }

  private evict(): void {
    for (const [key, tile] of this.tiles) {
      if (this.tiles.size <= Math.max(MAX_TILES, this.wanted.length)) return;
      tile.request?.abort();
      this.tiles.delete(key);
    }
  }

  private fetchNext(): void {
    const now = performance.now();
    for (const tile of this.wanted) {
      if (this.requests >= MAX_REQUESTS) return;
      if (!tile.request && !this.isCurrent(tile) && tile.retryAt <= now) void this.fetch(tile);
    }
  }

  private async fetch(tile: Tile): Promise<void> {
    const request = new AbortController();
    const asked = { newestMs: this.newestMs, layout: this.layout };
    tile.request = request;
    this.requests += 1;
    try {
      const [first, columns] = this.missing(tile);
      const { columnMs, rowBytes, lo, show } = tile.spec;
      const [fromMs, rows] = [tile.spec.fromMs + first * columnMs, tile.canvas.height];
      const range = { fromMs, toMs: fromMs + columns * columnMs, lo, hi: lo + rows * rowBytes };
      const answer = await readTile(this.id, { layout: asked.layout.name, show, ...range, columns, rows }, request.signal);
      this.paint(tile, first, columns, answer.values);
      // The answer may have a newer snapshot than was asked for: of what lies after its last column, nothing was read.
      tile.coveredMs = Math.max(asked.newestMs, Math.min(answer.newestMs, range.toMs));
    } catch (error) {
      if (!isAbort(error)) this.fail(tile, asked.layout, error);
    } finally {
      this.requests -= 1;
      tile.request = null;
      this.events.changed();
      this.fetchNext();
    }
  }

  /** The first column that a tile lacks, and how many. */
  private missing(tile: Tile): [number, number] {
    if (tile.coveredMs === 0) return [0, TILE_CELLS];
    const column = (ms: number): number => Math.floor((ms - tile.spec.fromMs) / tile.spec.columnMs);
    // The column of the last snapshot may have been half full.
    const first = Math.max(0, Math.min(TILE_CELLS - 1, column(tile.coveredMs - this.layout.windowMs)));
    const last = Math.min(TILE_CELLS - 1, column(this.newestMs));
    return [first, Math.max(1, last - first + 1)];
  }

  private fail(tile: Tile, layout: Layout, error: unknown): void {
    tile.retryAt = performance.now() + RETRY_MS;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.fetchNext(), RETRY_MS);
    if (!(error instanceof ApiError)) throw error;
    if (error.status !== 409) this.events.failed(error);
    else if (layout === this.layout) this.events.stale();
  }

  private paint(tile: Tile, first: number, columns: number, values: Uint8Array): void {
    const context = tile.canvas.getContext("2d");
    if (!context) return;
    const rows = tile.canvas.height;
    const colors = this.colorsOf(tile.spec.show);
    const image = context.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    // The answer lists columns, an image lists rows.
    for (let x = 0, from = 0; x < columns; x += 1) {
      for (let y = 0; y < rows; y += 1, from += 1) pixels[y * columns + x] = colors[values[from] ?? 0] ?? 0;
    }
    context.putImageData(image, first, 0);
  }

  private colorsOf(show: Show): Uint32Array {
    let colors = this.colors.get(show);
    if (!colors) this.colors.set(show, (colors = colorTable(show)));
    return colors;
  }
}
