// The heat map on the screen: a canvas that draws tiles for a viewport, once a frame at most.
//
// While tiles of a new zoom are on their way, the last complete picture is drawn in their place, scaled: the *ghost*.
// It needs no search for tiles of other zooms, and survives a change of layout as well.

import type { Show } from "../types";
import { color, themes } from "../ui/theme";
import type { AddressAxis, NamedRun } from "./axis";
import { tilesFor, zoomFor } from "./grid";
import { layOut, paint, type Ghost, type Scene } from "./paint";
import type { TileStore } from "./tiles";
import type { Viewport } from "./viewport";

/** Everything that decides what is drawn. */
export interface MapState {
  view: Viewport;
  axis: AddressAxis;
  runs: readonly NamedRun[];
  show: Show;
  /** The newest snapshot that the server has announced. */
  newestMs: number;
}

export class HeatMap {
  readonly canvas = document.createElement("canvas");
  private state: MapState | null = null;
  private frame = 0;
  private width = 0;
  private height = 0;
  private ghost: (Ghost & { show: Show }) | null = null;
  private drawn: { view: Viewport; show: Show } | null = null;
  private readonly observer: ResizeObserver;
  private readonly redraw = (): void => this.schedule();

  constructor(
    private readonly host: HTMLElement,
    private readonly tiles: TileStore,
  ) {
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
    themes.add(this.redraw);
  }

  /** Draws this from the next frame on. */
  set(state: MapState): void {
    this.state = state;
    this.schedule();
  }

  schedule(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.draw());
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    // A frame that is requested later must not draw.
    this.state = null;
    this.observer.disconnect();
    themes.delete(this.redraw);
  }

  /** The plot in CSS pixels, from the upper left corner of the canvas. */
  get plot(): Scene["plot"] {
    return layOut(this.width, this.height).plot;
  }

  /** What is drawn now, with this many pixels for each CSS pixel; null before the first answer. */
  scene(scale = window.devicePixelRatio): Scene | null {
    if (!this.state || this.width === 0) return null;
    const { view, axis, runs, show, newestMs } = this.state;
    const frame = layOut(this.width, this.height);
    const dpr = window.devicePixelRatio;
    const specs = tilesFor(view, show, zoomFor(view, frame.plot.width * dpr, frame.plot.height * dpr));
    const ready = this.tiles.want(specs, newestMs);
    const complete = ready.length >= specs.filter((spec) => spec.lo < axis.total).length;
    const ghost = !complete && this.ghost?.show === show ? this.ghost : null;
    const theme = { text: color("text"), muted: color("muted"), line: color("line") };
    return { scale, ...frame, view, axis, runs, tiles: ready, complete, ghost, theme };
  }

  private resize(): void {
    const box = this.host.getBoundingClientRect();
    [this.width, this.height] = [box.width, box.height];
    this.canvas.width = Math.round(box.width * window.devicePixelRatio);
    this.canvas.height = Math.round(box.height * window.devicePixelRatio);
    this.drawn = null;
    this.draw();
  }

  private draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const scene = this.scene();
    const context = this.canvas.getContext("2d");
    if (!scene || !context || !this.state) return;
    const { view, show } = this.state;
    const { complete } = scene;
    if (!complete && this.drawn) {
      this.keep(scene);
      scene.ghost = this.ghost?.show === show ? this.ghost : null;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    paint(context, scene);
    this.drawn = complete ? { view, show } : null;
    if (complete) this.ghost = null;
    const current = scene.tiles.every((tile) => this.tiles.isCurrent(tile));
    this.host.dataset["state"] = complete && current ? "ready" : "loading";
  }

  /** Keeps the picture on the screen, which was complete. */
  private keep({ plot, scale }: Scene): void {
    if (!this.drawn) return;
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(plot.width * scale));
    canvas.height = Math.max(1, Math.round(plot.height * scale));
    canvas.getContext("2d")?.drawImage(this.canvas, -plot.x * scale, -plot.y * scale);
    this.ghost = { canvas, ...this.drawn };
  }
}
