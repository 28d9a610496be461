// The heat map with what belongs to it: tool bar, map, minimap, legend, details at the pointer, and a line of text.
//
// Owns the viewport. Gestures, buttons and the address of the page change it, and each change is drawn in the next frame
// and written into the address once it rests.

import { TIMEOUT_MS, pictureHref, type ApiError } from "../api";
import { clock, duration } from "../format";
import type { ProcessRoute } from "../router";
import { SHOWS, type ProcessDetail, type Show } from "../types";
import { h, setText } from "../ui/dom";
import { AddressAxis, hex, type NamedRun } from "./axis";
import { Gestures } from "./gestures";
import { Hover } from "./hover";
import { LegendStrip } from "./legend";
import { HeatMap } from "./map";
import { Minimap } from "./minimap";
import { download, picture } from "./png";
import { SummaryLine } from "./summary";
import { TileStore } from "./tiles";
import { Toolbar } from "./toolbar";
import { advance, clamp, pan, whole, zoom, type Bounds, type Viewport } from "./viewport";

const REST_MS = 200;

export type PlaceInRoute = Pick<ProcessRoute, "show" | "span" | "range" | "addresses">;

export interface PanelEvents {
  /** What is shown has changed: to be written into the address. */
  moved: (place: PlaceInRoute, step: "push" | "replace") => void;
  /** The layout of the process has changed. */
  stale: () => void;
  failed: (error: ApiError) => void;
}

/** What the server holds of the process, and how often it adds to that. */
export interface Held {
  windowMs: number;
  live: boolean;
}

export class HeatPanel {
  readonly element = h("section", { class: "panel heat", "aria-label": "Heat map" });
  private readonly area: HTMLElement;
  private readonly map: HeatMap;
  private readonly tiles: TileStore;
  private readonly minimap: Minimap;
  private readonly hover: Hover;
  private readonly gestures: Gestures;
  private readonly toolbar: Toolbar;
  private readonly legend = new LegendStrip();
  private readonly summary: SummaryLine;
  private readonly range = h("p", { class: "muted range" });
  private detail: ProcessDetail;
  private axis: AddressAxis;
  private runs: NamedRun[];
  private bounds: Bounds;
  private view: Viewport;
  private show: Show = "hot";
  private timer = 0;
  /** Where the details are shown, in fractions of the plot. */
  private pointed: [number, number] | null = null;

  constructor(detail: ProcessDetail, held: Held, route: PlaceInRoute, private readonly events: PanelEvents) {
    this.detail = detail;
    this.axis = new AddressAxis(detail.spans);
    this.runs = this.axis.runs(detail.mappings);
    this.bounds = { firstMs: detail.range_ms[0], lastMs: detail.range_ms[1], total: this.axis.total, ...held };
    this.view = whole(this.bounds);
    const failed = events.failed;
    this.tiles = new TileStore(detail.id, this.layout(), { changed: () => this.map.schedule(), stale: events.stale, failed });
    this.area = h("div", { class: "map", tabindex: "0", role: "application", "aria-roledescription": "heat map" });
    this.map = new HeatMap(this.area, this.tiles);
    this.hover = new Hover(detail.id, this.area, failed);
    this.minimap = new Minimap(detail.id, (at) => this.center(at), failed);
    this.summary = new SummaryLine(detail.id, failed);
    this.gestures = new Gestures(this.area, () => this.map.plot, {
      zoom: (at, factors) => this.move(zoom(this.view, this.bounds, at, factors)),
      pan: (by) => this.move(pan(this.view, this.bounds, by)),
      point: (at) => this.point(at),
      key: (name) => this.key(name),
    });
    this.toolbar = new Toolbar({
      show: (show) => this.choose(show),
      zoom: (factors) => this.move(zoom(this.view, this.bounds, [0.5, 0.5], factors)),
      reset: () => this.key("reset"),
      follow: () => this.key(this.view.follow ? "hold" : "newest"),
      png: () => this.save(),
      html: () => this.fileHref(),
    });
    this.build();
    this.apply(route);
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.gestures.destroy();
    this.map.destroy();
    this.minimap.destroy();
    this.legend.destroy();
    this.hover.hide();
    this.summary.destroy();
    this.tiles.clear();
  }

  /** Shows what the address of the page says. */
  apply(route: PlaceInRoute): void {
    this.show = SHOWS.find((show) => show === route.show) ?? "hot";
    const view = whole(this.bounds);
    if (route.span !== null) view.fromMs = view.toMs - route.span;
    else if (route.range) [view.fromMs, view.toMs, view.follow] = [...route.range, false];
    if (route.addresses) {
      [view.lo, view.hi] = route.addresses.map((address) => this.axis.toPacked(hex(address))) as [number, number];
    }
    this.view = clamp(view, this.bounds);
    this.draw();
  }

  /** Shows addresses, with a little around them. */
  showAddresses(start: string, end: string): void {
    const [lo, hi] = [this.axis.toPacked(hex(start)), this.axis.toPacked(hex(end))];
    const margin = (hi - lo) / 50;
    this.move(clamp({ ...this.view, lo: lo - margin, hi: hi + margin }, this.bounds));
  }

  /** A new answer about the process. Where its layout has changed, the view keeps its addresses. */
  update(detail: ProcessDetail): void {
    const stale = detail.layout !== this.detail.layout;
    const before = this.axis;
    const usual = this.isUsualTime();
    this.detail = detail;
    this.bounds.firstMs = detail.range_ms[0];
    this.bounds.lastMs = Math.max(this.bounds.lastMs, detail.range_ms[1]);
    if (stale) {
      this.axis = new AddressAxis(detail.spans);
      const all = this.view.lo <= 0 && this.view.hi >= before.total;
      const [first, last] = [before.toAddress(this.view.lo), before.toAddress(this.view.hi - 1)];
      this.bounds.total = this.axis.total;
      const hi = all ? this.axis.total : this.axis.toPacked(last + 1n);
      this.view = { ...this.view, lo: all ? 0 : this.axis.toPacked(first), hi };
    }
    this.runs = this.axis.runs(detail.mappings);
    this.tiles.reset(this.layout());
    this.advance(usual);
  }

  /** A snapshot of the process has come. */
  snapshot(atMs: number): void {
    const usual = this.isUsualTime();
    // No late one is so much older than what was shown, as requests end before that: the clock was set back.
    if (atMs + TIMEOUT_MS < this.bounds.lastMs) this.setBack(atMs);
    else this.bounds.lastMs = Math.max(this.bounds.lastMs, atMs);
    this.advance(usual);
  }

  /** The server keeps nothing that is later than its newest snapshot. */
  private setBack(atMs: number): void {
    this.bounds.firstMs = Math.min(this.bounds.firstMs, atMs);
    this.bounds.lastMs = atMs;
    this.tiles.clear();
    this.summary.forget();
  }

  /** Whether the stretch of time is the one that is shown at first. */
  private isUsualTime(): boolean {
    const first = whole(this.bounds);
    return this.view.fromMs === first.fromMs && this.view.toMs === first.toMs && this.view.follow === first.follow;
  }

  /** Goes on to the newest snapshot, if that is followed. A view of all grows until it has its usual span. */
  private advance(usual: boolean): void {
    const { fromMs, toMs } = whole(this.bounds);
    this.view = usual ? { ...this.view, fromMs, toMs } : advance(this.view, this.bounds);
    this.draw();
    // Another time is under the pointer now.
    if (this.view.follow && this.pointed) this.point(this.pointed);
  }

  private layout(): { name: string; total: number; windowMs: number } {
    return { name: this.detail.layout, total: this.axis.total, windowMs: this.bounds.windowMs };
  }

  private build(): void {
    const id = "map-summary";
    this.summary.element.id = id;
    this.area.setAttribute("aria-label", `Heat map of ${this.detail.comm}, ${this.detail.pid}. Arrow keys move, plus and minus zoom.`);
    this.area.setAttribute("aria-describedby", id);
    this.map.canvas.setAttribute("role", "img");
    this.map.canvas.setAttribute("aria-labelledby", id);
    this.area.append(this.map.canvas, this.hover.element);
    const head = h("div", { class: "heat-head" }, [h("h2", {}, ["Heat map"]), this.range]);
    this.element.append(head, this.toolbar.element, this.area, this.minimap.element, this.legend.element, this.summary.element, help());
  }

  private draw(): void {
    const { axis, runs, view, show, bounds, detail } = this;
    this.map.set({ axis, runs, view, show, newestMs: bounds.lastMs });
    this.minimap.set({ layout: detail.layout, show, bounds: { ...bounds }, view });
    this.legend.set(show);
    this.toolbar.set(show, view.follow, bounds.live);
    const newest = { axis, runs, newestMs: bounds.lastMs, windowMs: bounds.windowMs, layout: detail.layout };
    this.summary.set(newest);
    const span = duration(view.toMs - view.fromMs);
    setText(this.range, `${clock(view.fromMs)} to ${clock(view.toMs)} UTC, ${span}${view.follow && !detail.ended ? ", following" : ""}`);
  }

  private move(view: Viewport): void {
    this.view = view;
    this.point(null);
    this.draw();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.events.moved(this.place(), "replace"), REST_MS);
  }

  /** The viewport as the address of the page has it: nothing where it is as at first. */
  private place(): PlaceInRoute {
    const { view, axis } = this;
    const span = view.toMs - view.fromMs;
    const usual = this.isUsualTime();
    const all = view.lo <= 0 && view.hi >= axis.total;
    const end = axis.toAddress(view.hi - 1) + 1n;
    return {
      show: this.show === "hot" ? "" : this.show,
      span: view.follow && !usual ? span : null,
      range: view.follow || usual ? null : [view.fromMs, view.toMs],
      addresses: all ? null : [axis.toAddress(view.lo).toString(16), end.toString(16)],
    };
  }

  /** The part that is shown, as a file. */
  private fileHref(): string {
    const { view, axis } = this;
    const [lo, hi] = [axis.toAddress(view.lo), axis.toAddress(view.hi - 1) + 1n];
    const time = { from: String(Math.round(view.fromMs)), to: String(Math.round(view.toMs)) };
    return pictureHref(this.detail.id, { ...time, lo: lo.toString(16), hi: hi.toString(16), show: this.show });
  }

  private choose(show: Show): void {
    if (show === this.show) return;
    this.show = show;
    this.draw();
    this.events.moved(this.place(), "push");
  }

  private key(name: "reset" | "newest" | "oldest" | "hold" | "describe" | "dismiss"): void {
    const { view, bounds } = this;
    const span = view.toMs - view.fromMs;
    switch (name) {
      case "reset":
        return this.move(whole(bounds));
      case "newest":
        return this.move(clamp({ ...view, fromMs: bounds.lastMs - span, toMs: bounds.lastMs, follow: bounds.live }, bounds));
      case "oldest":
        return this.move(clamp({ ...view, fromMs: bounds.firstMs, toMs: bounds.firstMs + span, follow: false }, bounds));
      case "hold":
        return this.move({ ...view, follow: false });
      case "describe":
        this.point([0.5, 0.5]);
        // Read out once, and not again with each snapshot.
        this.pointed = null;
        return;
      case "dismiss":
        return this.point(null);
    }
  }

  private point(at: [number, number] | null): void {
    this.pointed = at && at.every((part) => part >= 0 && part < 1) ? at : null;
    if (!at || !this.pointed) return this.hover.hide();
    const { view, axis } = this;
    const { plot } = this.map;
    const atMs = view.fromMs + at[0] * (view.toMs - view.fromMs);
    const address = axis.toAddress(view.lo + at[1] * (view.hi - view.lo));
    this.hover.show({ x: plot.x + at[0] * plot.width, y: plot.y + at[1] * plot.height, atMs, address });
  }

  private center([x, y]: [number, number]): void {
    const { view, bounds } = this;
    const [time, room] = [view.toMs - view.fromMs, bounds.lastMs - bounds.firstMs];
    const by: [number, number] = [
      (bounds.firstMs + x * room - (view.fromMs + view.toMs) / 2) / time,
      (y * bounds.total - (view.lo + view.hi) / 2) / (view.hi - view.lo),
    ];
    this.move(pan(view, bounds, by));
  }

  private save(): void {
    const { comm, pid } = this.detail;
    const image = picture(this.map, `${comm} ${pid}`, this.show);
    if (image) download(image, `isotherm-${comm.replace(/[^\w.-]/g, "_")}-${pid}-${this.show}.png`);
  }
}

function help(): HTMLElement {
  const lines: [string, string][] = [
    ["Wheel, pinch, + and -", "zoom; the wheel with Ctrl only time, with Shift only addresses"],
    ["Drag, arrow keys", "move; with Shift the arrow keys zoom one axis"],
    ["Home, End", "the oldest, the newest snapshot"],
    ["0", "show all"],
    ["Enter, Escape", "show and hide details of the middle"],
  ];
  const list = h("dl", {}, lines.flatMap(([term, text]) => [h("dt", {}, [term]), h("dd", {}, [text])]));
  return h("details", { class: "help" }, [h("summary", {}, ["Mouse, touch and keys"]), list]);
}
