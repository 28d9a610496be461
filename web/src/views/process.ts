// One process: its heat map, memory by access interval and idle time, working set over time, mappings.

import { ApiError, isAbort, overview, processDetail } from "../api";
import { Histogram } from "../charts/histogram";
import { History } from "../charts/history";
import { bytes, printable } from "../format";
import { HeatPanel } from "../heat/panel";
import type { Live } from "../live";
import { Reads } from "../reads";
import { format, write, type ProcessRoute } from "../router";
import type { Overview, ProcessDetail, SnapshotEvent } from "../types";
import { h, setText } from "../ui/dom";
import { Mappings } from "./mappings";
import type { View } from "./overview";

/** The answer holds all mappings: a few hundred kilobytes for some processes. */
const MIN_REFRESH_MS = 2000;

export class ProcessView implements View {
  readonly element = h("div", { class: "process" });
  private readonly title = h("h1", {}, ["Process"]);
  private readonly facts = h("p", { class: "muted" });
  private readonly place = h("div", { class: "heat-place" });
  private readonly temperature = new Histogram("By access interval", "an access interval of");
  private readonly idle = new Histogram("By idle time", "an idle time of");
  private readonly history = new History();
  private readonly mappings = new Mappings((start, end) => this.panel?.showAddresses(start, end));
  private panel: HeatPanel | null = null;
  private route: ProcessRoute;
  private readonly stop = new AbortController();
  private readonly reads = new Reads(MIN_REFRESH_MS, () => this.read());
  /** It is in none of the newest snapshots. */
  private ended = false;

  constructor(
    route: ProcessRoute,
    private readonly live: Live,
    private readonly onError: (message: string) => void,
  ) {
    this.route = route;
    const back = h("a", { href: format({ view: "overview", tab: "processes", sort: "", filter: "" }), class: "back" }, ["All processes"]);
    this.element.append(
      h("div", { class: "process-head" }, [back, this.title, this.facts]),
      h("div", { class: "process-body" }, [
        this.place,
        h("div", { class: "side" }, [this.history.element, this.temperature.element, this.idle.element]),
      ]),
      this.mappings.element,
    );
    live.snapshots.add(this.onSnapshot);
    void this.refresh();
  }

  /** Shows another state of this view. */
  apply(route: ProcessRoute): void {
    this.route = route;
    this.panel?.apply(route);
  }

  destroy(): void {
    this.reads.end();
    this.stop.abort();
    this.live.snapshots.delete(this.onSnapshot);
    this.panel?.destroy();
    this.history.destroy();
  }

  /** Something may have changed. */
  refresh(): Promise<void> {
    return this.reads.now();
  }

  private async read(): Promise<void> {
    try {
      const { signal } = this.stop;
      const [detail, all] = await Promise.all([processDetail(this.route.id, signal), this.panel ? null : overview(signal)]);
      this.onError("");
      this.draw(detail, all);
    } catch (error) {
      if (!isAbort(error)) this.fail(error);
    }
  }

  private readonly onSnapshot = (event: SnapshotEvent): void => {
    if (event.ids.includes(this.route.id)) this.panel?.snapshot(event.at_ms);
    else if (this.ended) return;
    this.reads.soon();
  };

  private fail(error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.live.suspect(error);
    this.onError(error.status === 404 ? `Process ${this.route.id} is not held by the server: it may have ended long ago.` : error.message);
  }

  private draw(detail: ProcessDetail, all: Overview | null): void {
    const now = detail.history.at(-1);
    this.ended = detail.ended;
    setText(this.title, `${printable(detail.comm) || "(no name)"} ${detail.pid}`);
    const figures = now ? `${bytes(now.resident)} resident, ${bytes(now.wss_1m)} accessed within 1 min` : "nothing measured yet";
    const when = detail.ended ? "ended; at the end " : "";
    setText(this.facts, `${when}${figures}, ${printable(detail.cgroup) || "no cgroup"}`);
    document.title = `${printable(detail.comm)} ${detail.pid} - Isotherm`;
    this.temperature.set(detail.temperature.map((bar) => ({ ms: bar.interval_ms, bytes: bar.bytes })));
    this.idle.set(detail.idle.map((bar) => ({ ms: bar.idle_ms, bytes: bar.bytes })));
    this.history.set(detail.history);
    this.mappings.set(detail.mappings);
    if (this.panel) this.panel.update(detail);
    else if (all) this.open(detail, all);
  }

  private open(detail: ProcessDetail, all: Overview): void {
    const held = { windowMs: all.window_ms, live: all.mode === "live" };
    this.panel = new HeatPanel(detail, held, this.route, {
      moved: (place, step) => {
        this.route = { ...this.route, ...place };
        write(this.route, step);
      },
      stale: () => void this.refresh(),
      failed: (error) => {
        this.fail(error);
        // The next answer takes the message away.
        this.reads.soon();
      },
    });
    this.place.replaceChildren(this.panel.element);
  }
}
