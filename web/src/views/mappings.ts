// The mappings of a process as a table, for readers who search for one by name or do not see the map. Closed at first; a
// process can have 65,530 of them, so only the largest are listed.

import { bytes, counted, mappingName } from "../format";
import { hex } from "../heat/axis";
import { shortName } from "../heat/paint";
import type { Mapping } from "../types";
import { button, h, setText } from "../ui/dom";

const MAX_ROWS = 200;
/** Classes of the columns. */
const KINDS = ["path", "mono wide", "number", "mono", ""] as const;

export class Mappings {
  readonly element = h("details", { class: "panel mappings" });
  private readonly title = h("summary", {}, ["Mappings"]);
  private readonly body = h("tbody");
  private mappings: readonly Mapping[] = [];
  private key = "";

  constructor(private readonly zoom: (start: string, end: string) => void) {
    const heads = ["Name", "First address", "Size", "Access", "Map"].map((text, i) => h("th", { scope: "col", class: KINDS[i] ?? "" }, [text]));
    const table = h("table", {}, [h("caption", { class: "visually-hidden" }, ["Mappings, the largest first"]), h("thead", {}, [h("tr", {}, heads)]), this.body]);
    const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Mappings" }, [table]);
    this.element.append(this.title, scroller);
    this.element.addEventListener("toggle", () => this.draw());
  }

  set(mappings: readonly Mapping[]): void {
    this.mappings = mappings;
    const part = mappings.length > MAX_ROWS ? `, the largest ${MAX_ROWS}` : "";
    setText(this.title, `${counted(mappings.length, "mapping", "mappings")}${part}`);
    this.draw();
  }

  private draw(): void {
    if (!this.element.open) return;
    const size = (mapping: Mapping): number => Number(hex(mapping.end) - hex(mapping.start));
    const largest = [...this.mappings].sort((a, b) => size(b) - size(a)).slice(0, MAX_ROWS);
    const key = largest.map((mapping) => `${mapping.start} ${mapping.end} ${mapping.name} ${mapping.perms}`).join("\n");
    if (key === this.key) return;
    this.key = key;
    this.body.replaceChildren(...largest.map((mapping) => this.row(mapping, size(mapping))));
  }

  private row(mapping: Mapping, size: number): HTMLElement {
    const name = mappingName(mapping.name);
    const show = button("Show", `Show ${name} at ${mapping.start} on the map`, () => this.zoom(mapping.start, mapping.end));
    return h("tr", {}, [
      h("th", { scope: "row", class: KINDS[0], title: name }, [shortName(mapping.name)]),
      h("td", { class: KINDS[1] }, [mapping.start]),
      h("td", { class: KINDS[2] }, [bytes(size)]),
      h("td", { class: KINDS[3] }, [mapping.perms]),
      h("td", {}, [show]),
    ]);
  }
}
