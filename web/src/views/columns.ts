// The columns of the tables of processes and cgroups. Both have the same figures after their names.

import { bytes, mappingName, printable } from "../format";
import { format } from "../router";
import type { CgroupRow, PlanRow, ProcessRow, Row } from "../types";
import { h, setText } from "../ui/dom";
import { classWords, drawBar, drawSpark } from "../ui/figures";
import type { Column } from "../ui/table";

function number<T extends Row>(id: string, label: string, hint: string, value: (row: T) => number, kind = ""): Column<T> {
  return { id, label, hint, value, kind: `number ${kind}`, draw: (cell, row) => setText(cell, bytes(value(row))) };
}

function figures<T extends Row>(): Column<T>[] {
  return [
    number("resident", "Resident", "Memory in RAM", (row) => row.resident_bytes),
    {
      id: "hot",
      label: "Classes",
      hint: "Resident memory by class; sorts by hot memory",
      value: (row) => row.classes.hot,
      kind: "classes-cell",
      draw: (cell, row) => {
        drawBar(cell, row.classes);
        cell.title = classWords(row.classes);
      },
    },
    number("small", "Hot, small\u00a0pages", "Hot memory that is not on huge pages", (row) => row.hot_small_bytes, "wide"),
    number("huge", "Huge pages", "Memory on huge pages", (row) => row.huge_bytes, "wide"),
    number("wss", "Accessed, 1\u00a0min", "Working set: memory accessed within one minute", (row) => row.wss["1m"]),
    {
      id: "trend",
      label: "Trend",
      hint: "Working set of 1 min over what is held; sorts by its change",
      value: (row) => (row.wss_history.at(-1) ?? 0) - (row.wss_history[0] ?? 0),
      kind: "wide spark-cell",
      draw: (cell, row) => drawSpark(cell, row.wss_history, "working set of 1 min"),
    },
  ];
}

/** A cgroup's own name, and where it is: the end of a path is the most specific part of it. */
export function splitPath(path: string): [string, string] {
  const at = path.lastIndexOf("/");
  return at <= 0 ? [path || "/", ""] : [path.slice(at + 1), path.slice(0, at)];
}

/** A link that is kept while its text stays, so that it keeps the focus. */
function link(cell: HTMLElement, href: string, text: string, after: string): void {
  const key = `${href} ${text} ${after}`;
  if (cell.dataset["key"] === key) return;
  cell.dataset["key"] = key;
  cell.replaceChildren(h("a", { href }, [text]), h("span", { class: "muted" }, [after]));
}

export function processHref(id: string): string {
  return format({ view: "process", id, show: "", span: null, range: null, addresses: null });
}

export function processColumns(): Column<ProcessRow>[] {
  const state = (row: ProcessRow): string => `${row.sampled ? ", sampled" : ""}${row.exited ? ", ended" : ""}`;
  return [
    {
      id: "name",
      label: "Process",
      value: (row) => `${row.comm} ${row.pid}`,
      kind: "name",
      draw: (cell, row) => link(cell, processHref(row.id), printable(row.comm) || "(no name)", ` ${row.pid}${state(row)}`),
    },
    {
      id: "cgroup",
      label: "Cgroup",
      value: (row) => row.cgroup,
      kind: "wide path",
      draw: (cell, row) => {
        if (cell.title === printable(row.cgroup) && cell.hasChildNodes()) return;
        cell.title = printable(row.cgroup);
        const [name, parent] = splitPath(cell.title);
        cell.replaceChildren(name, h("span", { class: "muted" }, [parent && ` ${parent}`]));
      },
    },
    ...figures<ProcessRow>(),
  ];
}

function cgroupNames(row: CgroupRow): string {
  return [row.unit, row.pod_uid && `pod ${row.pod_uid}`, row.container_id && `container ${row.container_id.slice(0, 12)}`]
    .filter((name) => typeof name === "string" && name !== "" && !row.path.endsWith(name))
    .join(", ");
}

export function cgroupColumns(): Column<CgroupRow>[] {
  const limit = (row: CgroupRow): number => row.memory?.limit ?? Infinity;
  return [
    {
      id: "name",
      label: "Cgroup",
      value: (row) => row.path,
      kind: "name path",
      draw: (cell, row) => {
        const href = format({ view: "overview", tab: "processes", sort: "", filter: row.path });
        const [name, parent] = splitPath(printable(row.path));
        link(cell, href, name, [printable(cgroupNames(row)), parent].filter(Boolean).map((text) => ` ${text}`).join(""));
        cell.title = printable(row.path);
      },
    },
    {
      id: "count",
      label: "Processes",
      value: (row) => row.processes,
      kind: "number wide",
      draw: (cell, row) => setText(cell, row.processes.toLocaleString("en")),
    },
    {
      id: "limit",
      label: "Limit",
      hint: "Memory limit of the cgroup",
      value: limit,
      kind: "number wide",
      draw: (cell, row) => setText(cell, row.memory === null ? "not known" : row.memory.limit === null ? "none" : bytes(row.memory.limit)),
    },
    ...figures<CgroupRow>(),
  ];
}

/** Where in a process, as people name it. */
export function planPlace(row: PlanRow): string {
  return row.mapping === null ? "" : `${mappingName(row.mapping.name)} at ${row.mapping.start}`;
}

export function planColumns(): Column<PlanRow>[] {
  return [
    {
      id: "name",
      label: "Process",
      value: (row) => `${row.comm} ${row.pid}`,
      kind: "name",
      draw: (cell, row) => link(cell, processHref(row.id), printable(row.comm) || "(no name)", ` ${row.pid}`),
    },
    { id: "action", label: "Action", value: (row) => row.action, draw: (cell, row) => setText(cell, printable(row.action)) },
    {
      id: "memory",
      label: "Memory",
      hint: "Memory that would become huge, leave, or be returned",
      value: (row) => row.bytes,
      kind: "number",
      draw: (cell, row) => setText(cell, row.why_not ? "" : bytes(row.bytes)),
    },
    {
      id: "ranges",
      label: "Huge ranges",
      hint: "Ranges of 2 MiB",
      value: (row) => row.huge_ranges,
      kind: "number wide",
      draw: (cell, row) => setText(cell, row.huge_ranges > 0 ? row.huge_ranges.toLocaleString("en") : ""),
    },
    {
      id: "where",
      label: "Where, or why not",
      value: (row) => row.why_not || planPlace(row),
      kind: "where",
      draw: (cell, row) => {
        const stays = row.why_not !== "";
        setText(cell, printable(stays ? `stays: ${row.why_not}` : planPlace(row) || "other mappings"));
        cell.classList.toggle("muted", stays);
        cell.title = cell.textContent ?? "";
      },
    },
  ];
}
