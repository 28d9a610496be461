// The state of a view in the fragment of the page's address, so that it can be linked to and gone back to.
//
//   #/?tab=cgroups&sort=-resident&filter=redis
//   #/process/812-4711?show=idle&span=60000               follows the newest snapshot, the last minute
//   #/process/812-4711?from=..&to=..&lo=HEX&hi=HEX         a stretch of time and addresses
//
// Parsing is total: what is not understood is ignored, since people edit addresses.

/** The tables of the overview. */
export const TABS = ["processes", "cgroups", "plan"] as const;
export type Tab = (typeof TABS)[number];

export interface OverviewRoute {
  view: "overview";
  tab: Tab;
  /** A column, with `-` before it for the largest first; empty for the default. */
  sort: string;
  filter: string;
}

export interface ProcessRoute {
  view: "process";
  id: string;
  show: string;
  /** Milliseconds up to the newest snapshot; null if `from` and `to` count. */
  span: number | null;
  range: [number, number] | null;
  /** First address and the one after the last, in hex; null for all. */
  addresses: [string, string] | null;
}

export type Route = OverviewRoute | ProcessRoute;

function positive(text: string | null): number | null {
  const value = text === null ? NaN : Number(text);
  return Number.isFinite(value) && value > 0 ? value : null;
}

function pair<T extends number | string>(a: T | null, b: T | null): [T, T] | null {
  return a === null || b === null || !(a < b) ? null : [a, b];
}

function address(text: string | null): string | null {
  return text !== null && /^[0-9a-f]{1,16}$/i.test(text) ? text.toLowerCase().padStart(16, "0") : null;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function parse(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#/, "").split("?", 2);
  const values = new URLSearchParams(query);
  const id = /^\/process\/([^/]+)$/.exec(path)?.[1];
  if (id === undefined) {
    const tab = TABS.find((known) => known === values.get("tab")) ?? "processes";
    return { view: "overview", tab, sort: values.get("sort") ?? "", filter: values.get("filter") ?? "" };
  }
  return {
    view: "process",
    id: decoded(id),
    show: values.get("show") ?? "",
    span: positive(values.get("span")),
    range: pair(positive(values.get("from")), positive(values.get("to"))),
    addresses: pair(address(values.get("lo")), address(values.get("hi"))),
  };
}

export function format(route: Route): string {
  const values = new URLSearchParams();
  if (route.view === "overview") {
    if (route.tab !== "processes") values.set("tab", route.tab);
    if (route.sort) values.set("sort", route.sort);
    if (route.filter) values.set("filter", route.filter);
    return fragment("/", values);
  }
  if (route.show) values.set("show", route.show);
  if (route.span !== null) values.set("span", String(Math.round(route.span)));
  if (route.span === null && route.range) {
    values.set("from", String(Math.round(route.range[0])));
    values.set("to", String(Math.round(route.range[1])));
  }
  if (route.addresses) {
    values.set("lo", route.addresses[0].replace(/^0+(?=.)/, ""));
    values.set("hi", route.addresses[1].replace(/^0+(?=.)/, ""));
  }
  return fragment(`/process/${encodeURIComponent(route.id)}`, values);
}

function fragment(path: string, values: URLSearchParams): string {
  const query = values.toString();
  return query ? `#${path}?${query}` : `#${path}`;
}

/** Writes a state into the address, as a step that can be gone back to or in place of the current one. */
export function write(route: Route, step: "push" | "replace"): void {
  const wanted = format(route);
  if (wanted === location.hash) return;
  if (step === "push") history.pushState(null, "", wanted);
  else history.replaceState(null, "", wanted);
}
