// The whole process over all time that is held, in a strip, with the part that the map shows. Dragging moves that part.
//
// One tile request fills it. It is read again every few seconds at most: a column of it is many snapshots.

import { ApiError, isAbort, tile } from "../api";
import { colorTable, css, PLOT_COLOR } from "../palette";
import type { Show } from "../types";
import { h } from "../ui/dom";
import type { Bounds, Viewport } from "./viewport";

const COLUMNS = 320;
const ROWS = 48;
const REFRESH_MS = 5000;

export interface MinimapState {
  layout: string;
  show: Show;
  bounds: Bounds;
  view: Viewport;
}

export class Minimap {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { width: String(COLUMNS), height: String(ROWS), role: "img", "aria-label": "Overview of the heat map" });
  private readonly frame = h("div", { class: "minimap-frame" });
  private state: MinimapState | null = null;
  private request: AbortController | null = null;
  private key = "";
  private drawnAt = -Infinity;
  private drawn: Bounds | null = null;
  private timer = 0;

  constructor(
    private readonly id: string,
    /** Moves the middle of the map to fractions of the whole. */
    private readonly center: (at: [number, number]) => void,
    private readonly failed: (error: ApiError) => void,
  ) {
    this.element = h("div", { class: "minimap" }, [this.canvas, this.frame]);
    const drag = (event: PointerEvent): void => {
      const box = this.element.getBoundingClientRect();
      this.center([(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
    };
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      drag(event);
    });
    this.element.addEventListener("pointermove", (event) => {
      if (this.element.hasPointerCapture(event.pointerId)) drag(event);
    });
  }

  set(state: MinimapState): void {
    this.state = state;
    const { view, bounds } = state;
    const time = Math.max(1, bounds.lastMs - bounds.firstMs);
    const percent = (part: number): string => `${100 * Math.min(1, Math.max(0, part))}%`;
    this.frame.style.left = percent((view.fromMs - bounds.firstMs) / time);
    this.frame.style.right = percent((bounds.lastMs - view.toMs) / time);
    this.frame.style.top = percent(view.lo / bounds.total);
    this.frame.style.bottom = percent((bounds.total - view.hi) / bounds.total);
    this.refresh();
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.request?.abort();
    this.state = null;
  }

  private refresh(): void {
    if (!this.state || this.state.bounds.total === 0) return;
    const { layout, show, bounds } = this.state;
    const key = `${layout} ${show}`;
    const wait = key === this.key ? this.drawnAt + REFRESH_MS - performance.now() : 0;
    if (key === this.key && this.drawn?.lastMs === bounds.lastMs) return;
    clearTimeout(this.timer);
    if (wait > 0) {
      this.timer = window.setTimeout(() => this.refresh(), wait);
      return;
    }
    this.key = key;
    this.drawnAt = performance.now();
    this.drawn = bounds;
    void this.read(layout, show, bounds);
  }

  private async read(layout: string, show: Show, bounds: Bounds): Promise<void> {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const toMs = Math.max(bounds.lastMs, bounds.firstMs + 1);
    const size = { lo: 0, hi: bounds.total, columns: COLUMNS, rows: ROWS };
    try {
      const answer = await tile(this.id, { layout, show, fromMs: bounds.firstMs, toMs, ...size }, request.signal);
      this.paint(show, answer.values);
    } catch (error) {
      if (isAbort(error)) return;
      // The map reads the new layout, and comes back here with it.
      this.key = "";
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 409) this.failed(error);
    }
  }

  private paint(show: Show, values: Uint8Array): void {
    const context = this.canvas.getContext("2d");
    if (!context) return;
    const image = context.createImageData(COLUMNS, ROWS);
    const [pixels, colors] = [new Uint32Array(image.data.buffer), colorTable(show)];
    for (let x = 0, from = 0; x < COLUMNS; x += 1) {
      for (let y = 0; y < ROWS; y += 1, from += 1) pixels[y * COLUMNS + x] = colors[values[from] ?? 0] ?? 0;
    }
    context.putImageData(image, 0, 0);
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = css(PLOT_COLOR);
    context.fillRect(0, 0, COLUMNS, ROWS);
    context.globalCompositeOperation = "source-over";
  }
}
