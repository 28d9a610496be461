// The top of the overview: the host and what watching it costs, and the figures of all processes together.

import { bytes, clock, duration, percent, printable, share } from "../format";
import type { Overview, Row } from "../types";
import { h, setText } from "../ui/dom";
import { CLASS_MEANINGS, CLASS_NAMES, drawBar } from "../ui/figures";

/** Name and value pairs, drawn anew only where a value has changed. */
class Facts {
  readonly element = h("dl", { class: "facts" });
  private readonly values = new Map<string, HTMLElement>();

  set(facts: readonly (readonly [string, string, string?])[]): void {
    for (const [name, text, hint] of facts) {
      let value = this.values.get(name);
      if (!value) {
        value = h("dd");
        this.values.set(name, value);
        this.element.append(h("div", {}, [h("dt", {}, [name]), value]));
      }
      setText(value, text);
      if (hint) value.title = hint;
    }
  }
}

export class HostLine {
  readonly element: HTMLElement;
  private readonly facts = new Facts();
  private readonly note = h("p", { class: "muted note" });

  constructor() {
    this.element = h("section", { class: "panel host", "aria-label": "Host" }, [this.facts.element, this.note]);
  }

  set(data: Overview): void {
    const { host } = data;
    this.facts.set([
      ["Host", printable(host.name)],
      ["Kernel", printable(host.kernel)],
      ["CPUs", host.cpus.toLocaleString("en"), printable(host.cpu)],
      ["Memory", bytes(host.memory_bytes)],
      ["Source", printable(host.source), printable(host.source_note)],
      ["Monitor CPU", `${percent(host.monitor_cpu_pct)}%`, "CPU time of the monitor, percent of one CPU"],
      ["Slow-down", `${percent(host.slowdown_pct)}%`, "Estimated cost to the processes, percent of one CPU"],
      ["Window", duration(data.window_ms), "Time between two snapshots"],
      ["Snapshots lost", data.lost_snapshots.toLocaleString("en")],
      ["Newest", `${clock(data.at_ms)} UTC`],
      ["Isotherm", printable(host.version)],
    ]);
    setText(this.note, `${printable(host.cpu)}. ${printable(host.source_note)}`);
  }
}

export class Totals {
  readonly element: HTMLElement;
  private readonly facts = new Facts();
  private readonly bar = h("div", { class: "total-bar" });
  private readonly legend = h("ul", { class: "classes" });
  private readonly values = CLASS_NAMES.map(() => h("span", { class: "value" }));

  constructor() {
    CLASS_NAMES.forEach((name, i) => {
      const item = h("li", { title: CLASS_MEANINGS[name] }, [h("i", { class: `swatch swatch-${name}` }), name, this.values[i] ?? null]);
      this.legend.append(item);
    });
    const title = "All processes";
    this.element = h("section", { class: "panel", "aria-label": title }, [h("h2", {}, [title]), this.facts.element, this.bar, this.legend]);
  }

  set(totals: Row): void {
    this.facts.set([
      ["Resident", bytes(totals.resident_bytes)],
      ["On huge pages", bytes(totals.huge_bytes)],
      ["Hot on small pages", bytes(totals.hot_small_bytes), "Hot, and not on huge pages: what a collapse would help"],
      ["Swapped out", totals.swapped_bytes === null ? "not known" : bytes(totals.swapped_bytes)],
      ["Accessed within 10 s", bytes(totals.wss["10s"])],
      ["1 min", bytes(totals.wss["1m"])],
      ["10 min", bytes(totals.wss["10m"])],
      ["1 h", bytes(totals.wss["1h"])],
      ["Estimated", bytes(totals.estimated_bytes), "Not checked itself yet: it counts like checked memory around it"],
    ]);
    drawBar(this.bar, totals.classes);
    CLASS_NAMES.forEach((name, i) => {
      const part = totals.resident_bytes > 0 ? totals.classes[name] / totals.resident_bytes : 0;
      const value = this.values[i];
      if (value) setText(value, `${bytes(totals.classes[name])}, ${share(part)}`);
    });
  }
}
