// A table that can be sorted and filtered, and is updated in place: rows are kept by key, so that the focus and a
// selection survive a new snapshot.
//
// Hosts have thousands of processes. Only the first rows are drawn until the reader asks for all.

import { counted } from "../format";
import { button, h, setText } from "./dom";

const MAX_FIRST_ROWS = 100;

export interface Column<T> {
  id: string;
  label: string;
  /** Explains the label. */
  hint?: string;
  /** What it is sorted by. Numbers begin with the largest. */
  value: (row: T) => number | string;
  /** Fills the cell. It may hold what the last call has drawn. */
  draw: (cell: HTMLElement, row: T) => void;
  /** Class of its cells; `number` aligns right, `wide` hides on narrow screens. */
  kind?: string;
}

export interface TableOptions<T> {
  caption: string;
  columns: readonly Column<T>[];
  key: (row: T) => string;
  /** Text that the filter searches. */
  text: (row: T) => string;
  /** For the line that counts rows. */
  nouns: readonly [string, string];
  onSort: (sort: string) => void;
}

/** `-resident` is by `resident`, the largest first. */
export function sorted<T>(rows: readonly T[], columns: readonly Column<T>[], sort: string): T[] {
  const [down, id] = sort.startsWith("-") ? [-1, sort.slice(1)] : [1, sort];
  const column = columns.find((c) => c.id === id);
  if (!column) return [...rows];
  const compare = (a: number | string, b: number | string): number =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  // Sorting is stable: rows of equal value keep the order of the answer.
  return [...rows].sort((a, b) => down * compare(column.value(a), column.value(b)));
}

/** Rows that hold every word of the filter. */
export function filtered<T>(rows: readonly T[], text: (row: T) => string, filter: string): T[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => words.every((word) => text(row).toLowerCase().includes(word)));
}

export class SortTable<T> {
  readonly element: HTMLElement;
  private readonly body = h("tbody");
  private readonly status = h("p", { class: "muted", "aria-live": "polite" });
  private readonly all = button("Show all", "Show all", () => this.showAll());
  private readonly heads: HTMLElement[];
  private readonly kept = new Map<string, HTMLTableRowElement>();
  private rows: readonly T[] = [];
  private filter = "";
  private sort = "";
  private limit = MAX_FIRST_ROWS;

  constructor(private readonly options: TableOptions<T>) {
    this.heads = options.columns.map((column) => this.head(column));
    const caption = h("caption", { class: "visually-hidden" }, [options.caption]);
    const table = h("table", {}, [caption, h("thead", {}, [h("tr", {}, this.heads)]), this.body]);
    const scroller = h("div", { class: "scroller", role: "region", "aria-label": options.caption, tabindex: "0" }, [table]);
    this.element = h("div", {}, [scroller, h("div", { class: "table-foot" }, [this.status, this.all])]);
  }

  update(rows: readonly T[], filter: string, sort: string): void {
    [this.rows, this.filter, this.sort] = [rows, filter, sort];
    this.draw();
  }

  private head(column: Column<T>): HTMLElement {
    const press = (): void => this.options.onSort(this.nextSort(column));
    const control = button(column.label, column.label, press, "sort");
    if (column.hint) control.title = column.hint;
    return h("th", { scope: "col", class: column.kind ?? "" }, [control]);
  }

  private nextSort(column: Column<T>): string {
    if (this.sort === `-${column.id}`) return column.id;
    if (this.sort === column.id) return `-${column.id}`;
    const first = this.rows[0];
    return first !== undefined && typeof column.value(first) === "string" ? column.id : `-${column.id}`;
  }

  private showAll(): void {
    this.limit = Infinity;
    this.draw();
  }

  private draw(): void {
    const { columns, text, key, nouns } = this.options;
    const found = sorted(filtered(this.rows, text, this.filter), columns, this.sort);
    const shown = found.slice(0, this.limit);
    columns.forEach((column, i) => {
      const order = this.sort === column.id ? "ascending" : this.sort === `-${column.id}` ? "descending" : "none";
      this.heads[i]?.setAttribute("aria-sort", order);
    });
    const focused = document.activeElement;
    const wanted = new Set(shown.map(key));
    for (const [id, row] of this.kept) if (!wanted.has(id)) this.drop(id, row);
    shown.forEach((row, i) => this.place(row, i));
    // A row that moves loses the focus.
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.body.contains(focused)) focused.focus();
    const of = found.length === this.rows.length ? "" : ` of ${this.rows.length.toLocaleString("en")}`;
    const part = shown.length < found.length ? `, ${shown.length.toLocaleString("en")} shown` : "";
    setText(this.status, `${counted(found.length, nouns[0], nouns[1])}${of}${part}`);
    this.all.hidden = shown.length === found.length;
  }

  private drop(id: string, row: HTMLTableRowElement): void {
    row.remove();
    this.kept.delete(id);
  }

  private place(row: T, index: number): void {
    const id = this.options.key(row);
    let element = this.kept.get(id);
    if (!element) {
      element = h("tr", {}, this.options.columns.map((column, i) =>
        i === 0 ? h("th", { scope: "row", class: column.kind ?? "" }) : h("td", { class: column.kind ?? "" }),
      ));
      this.kept.set(id, element);
    }
    this.options.columns.forEach((column, i) => {
      const cell = element.cells[i];
      if (cell) column.draw(cell, row);
    });
    const there = this.body.rows[index];
    if (there !== element) this.body.insertBefore(element, there ?? null);
  }
}
