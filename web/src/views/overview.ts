// The overview: the host and what watching costs, all memory by class, processes and cgroups, actions and events.

import { isAbort, overview, plan } from "../api";
import { bytes, clock, counted, printable } from "../format";
import type { Live } from "../live";
import { Reads } from "../reads";
import { format, TABS, write, type OverviewRoute, type Tab } from "../router";
import type { CgroupRow, Overview, Plan, PlanRow, ProcessRow } from "../types";
import { h, setText } from "../ui/dom";
import { SortTable } from "../ui/table";
import { cgroupColumns, planColumns, planPlace, processColumns } from "./columns";
import { HostLine, Totals } from "./host";

/** A page that is shown by a snapshot a second should not ask more often than this. */
const MIN_REFRESH_MS = 1000;
const DEFAULT_SORT: Record<Tab, string> = { processes: "-resident", cgroups: "-resident", plan: "-memory" };
const PLAN_WORDS =
  "What isotherm collapse, isotherm reclaim and isotherm split would do at their defaults, as of a few seconds ago. Nothing is done here, and what only shows at the try is not known.";

export interface View {
  readonly element: HTMLElement;
  destroy(): void;
}

export class OverviewView implements View {
  readonly element = h("div", { class: "overview" });
  private readonly host = new HostLine();
  private readonly totals = new Totals();
  private readonly tabs: HTMLAnchorElement[];
  private readonly filter = h("input", { type: "search", "aria-label": "Filter rows", placeholder: "Filter by name, pid or cgroup", spellcheck: "false" });
  private readonly processes: SortTable<ProcessRow>;
  private readonly cgroups: SortTable<CgroupRow>;
  private readonly plan: SortTable<PlanRow>;
  private readonly planNote = h("p", { class: "muted plan-note" });
  private readonly actions = h("div");
  private readonly events = h("div");
  private data: Overview | null = null;
  private planned: Plan | null = null;
  private readonly stop = new AbortController();
  private readonly reads = new Reads(MIN_REFRESH_MS, () => this.read());
  private readonly onSnapshot = (): void => this.reads.soon();

  constructor(
    private route: OverviewRoute,
    private readonly live: Live,
    private readonly onError: (message: string) => void,
  ) {
    const onSort = (sort: string): void => this.go({ sort: sort === DEFAULT_SORT[this.route.tab] ? "" : sort }, "replace");
    this.processes = new SortTable({
      caption: "Processes",
      columns: processColumns(),
      key: (row) => row.id,
      text: (row) => `${row.comm} ${row.pid} ${row.cgroup}`,
      nouns: ["process", "processes"],
      onSort,
    });
    this.cgroups = new SortTable({
      caption: "Cgroups",
      columns: cgroupColumns(),
      key: (row) => row.path,
      text: (row) => `${row.path} ${row.unit ?? ""} ${row.pod_uid ?? ""} ${row.container_id ?? ""}`,
      nouns: ["cgroup", "cgroups"],
      onSort,
    });
    this.plan = new SortTable({
      caption: "Plan",
      columns: planColumns(),
      key: (row) => `${row.id} ${row.action} ${row.mapping?.start ?? ""} ${row.why_not}`,
      text: (row) => `${row.comm} ${row.pid} ${row.cgroup} ${row.action} ${planPlace(row)} ${row.why_not}`,
      nouns: ["row", "rows"],
      onSort,
    });
    this.tabs = TABS.map((tab) => h("a", { class: "tab", "data-tab": tab }));
    this.filter.addEventListener("input", () => this.go({ filter: this.filter.value }, "replace"));
    this.build();
    this.apply(route);
    live.snapshots.add(this.onSnapshot);
    void this.refresh();
  }

  /** Shows another state of this view. */
  apply(route: OverviewRoute): void {
    this.route = route;
    if (this.filter.value !== route.filter) this.filter.value = route.filter;
    for (const tab of this.tabs) {
      const name = TABS.find((known) => known === tab.dataset["tab"]) ?? "processes";
      tab.href = format({ ...route, tab: name, sort: "" });
      if (name === route.tab) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
    this.processes.element.hidden = route.tab !== "processes";
    this.cgroups.element.hidden = route.tab !== "cgroups";
    this.plan.element.hidden = this.planNote.hidden = route.tab !== "plan";
    if (route.tab === "plan" && this.data && !this.planned) void this.refresh();
    this.draw();
  }

  destroy(): void {
    this.live.snapshots.delete(this.onSnapshot);
    this.reads.end();
    this.stop.abort();
  }

  /** Something may have changed. */
  refresh(): Promise<void> {
    return this.reads.now();
  }

  private async read(): Promise<void> {
    const { signal } = this.stop;
    try {
      const wantsPlan = this.route.tab === "plan";
      const [data, planned] = await Promise.all([overview(signal), wantsPlan ? plan(signal) : null]);
      this.data = data;
      this.planned = planned ?? this.planned;
      this.onError("");
      this.draw();
    } catch (error) {
      if (isAbort(error)) return;
      this.live.suspect(error);
      this.onError(error instanceof Error ? error.message : String(error));
    }
  }

  private go(change: Partial<OverviewRoute>, step: "push" | "replace"): void {
    const route = { ...this.route, ...change };
    write(route, step);
    this.apply(route);
  }

  private build(): void {
    const bar = h("div", { class: "toolbar" }, [h("nav", { class: "tabs", "aria-label": "Tables" }, this.tabs), this.filter]);
    this.element.append(
      h("h1", { class: "visually-hidden" }, ["Overview"]),
      this.host.element,
      this.totals.element,
      h("section", { class: "panel tables", "aria-label": "Processes, cgroups and plan" }, [bar, this.planNote, this.processes.element, this.cgroups.element, this.plan.element]),
      h("div", { class: "columns" }, [
        h("section", { class: "panel", "aria-label": "Actions" }, [h("h2", {}, ["Actions"]), this.actions]),
        h("section", { class: "panel", "aria-label": "Events" }, [h("h2", {}, ["Events"]), this.events]),
      ]),
    );
  }

  private draw(): void {
    const { data, route } = this;
    if (!data) return;
    this.host.set(data);
    this.totals.set(data.totals);
    const counts = [counted(data.processes.length, "process", "processes"), counted(data.cgroups.length, "cgroup", "cgroups")];
    this.tabs.forEach((tab, i) => setText(tab, counts[i] ?? "Plan"));
    const sort = route.sort || DEFAULT_SORT[route.tab];
    if (route.tab === "processes") this.processes.update(data.processes, route.filter, sort);
    else if (route.tab === "cgroups") this.cgroups.update(data.cgroups, route.filter, sort);
    else this.drawPlan(sort);
    this.drawActions(data);
    this.drawEvents(data);
  }

  private drawPlan(sort: string): void {
    const { planned } = this;
    if (!planned) return;
    const none = "A recording has no plan: isotherm collapse --dry-run --from makes one of it.";
    const leftOut = planned.left_out > 0 ? ` ${planned.left_out.toLocaleString("en")} rows of less memory are left out.` : "";
    setText(this.planNote, planned.mode === "recording" ? none : PLAN_WORDS + leftOut);
    this.plan.update(planned.rows, this.route.filter, sort);
  }

  private drawActions({ actions }: Overview): void {
    const key = JSON.stringify(actions);
    if (this.actions.dataset["key"] === key) return;
    this.actions.dataset["key"] = key;
    if (actions.length === 0) {
      this.actions.replaceChildren(h("p", { class: "muted" }, ["Memory is only watched: no action is configured, or none was due."]));
      return;
    }
    const heads = ["Action", "Result", "Huge ranges", "Memory"];
    const head = heads.map((text, i) => h("th", { scope: "col", class: i > 1 ? "number" : "" }, [text]));
    const rows = actions.map((row) =>
      h("tr", {}, [
        h("th", { scope: "row" }, [printable(row.action)]),
        h("td", {}, [printable(row.result)]),
        h("td", { class: "number" }, [row.huge_ranges.toLocaleString("en")]),
        h("td", { class: "number" }, [bytes(row.bytes)]),
      ]),
    );
    this.actions.replaceChildren(h("table", {}, [h("thead", {}, [h("tr", {}, head)]), h("tbody", {}, rows)]));
  }

  private drawEvents({ events }: Overview): void {
    const key = JSON.stringify(events);
    if (this.events.dataset["key"] === key) return;
    this.events.dataset["key"] = key;
    if (events.length === 0) {
      this.events.replaceChildren(h("p", { class: "muted" }, ["None yet."]));
      return;
    }
    const lines = events.toReversed().map((event) => {
      const time = h("time", { datetime: new Date(event.at_ms).toISOString() }, [clock(event.at_ms)]);
      return h("li", {}, [time, printable(event.text)]);
    });
    const attributes = { class: "events", tabindex: "0", role: "region", "aria-label": "Events, newest first, UTC" };
    this.events.replaceChildren(h("div", attributes, [h("ul", {}, lines)]));
  }
}
