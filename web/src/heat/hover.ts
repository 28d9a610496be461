// The box at the pointer: address, mapping, how often the region is accessed, how long it has been idle, and how much
// of it is hot. The server is asked once the pointer rests, and an older question is dropped.

import { ApiError, cell, isAbort } from "../api";
import { bytes, clock, duration, mappingName, rate, share } from "../format";
import type { CellAnswer, CellRegion } from "../types";
import { h } from "../ui/dom";

const REST_MS = 90;
/** From the pointer, in CSS pixels. */
const DISTANCE = 14;

export interface Pointed {
  /** In CSS pixels, from the upper left corner of the map. */
  x: number;
  y: number;
  atMs: number;
  address: bigint;
}

export class Hover {
  readonly element = h("div", { class: "hover", role: "status" });
  private request: AbortController | null = null;
  private timer = 0;

  constructor(
    private readonly id: string,
    private readonly host: HTMLElement,
    private readonly failed: (error: ApiError) => void,
  ) {
    this.hide();
  }

  hide(): void {
    clearTimeout(this.timer);
    this.request?.abort();
    this.element.hidden = true;
  }

  show(pointed: Pointed): void {
    clearTimeout(this.timer);
    this.request?.abort();
    // What was shown belongs to another place.
    if (!this.element.hidden) this.place(pointed);
    this.timer = window.setTimeout(() => void this.ask(pointed), REST_MS);
  }

  private async ask(pointed: Pointed): Promise<void> {
    const request = new AbortController();
    this.request = request;
    try {
      const answer = await cell(this.id, pointed.atMs, pointed.address.toString(16), request.signal);
      if (request.signal.aborted) return;
      this.element.replaceChildren(...describe(pointed, answer));
      this.element.hidden = false;
      this.place(pointed);
    } catch (error) {
      if (isAbort(error)) return;
      this.element.hidden = true;
      if (!(error instanceof ApiError)) throw error;
      this.failed(error);
    }
  }

  /** At the side of the pointer where there is room. */
  private place({ x, y }: Pointed): void {
    const [width, height] = [this.host.clientWidth, this.host.clientHeight];
    const box = this.element.getBoundingClientRect();
    const left = x + DISTANCE + box.width <= width ? x + DISTANCE : x - DISTANCE - box.width;
    const top = y + DISTANCE + box.height <= height ? y + DISTANCE : y - DISTANCE - box.height;
    this.element.style.left = `${Math.min(Math.max(0, left), Math.max(0, width - box.width))}px`;
    this.element.style.top = `${Math.max(0, top)}px`;
  }
}

function describe(pointed: Pointed, { at_ms, region, mapping }: CellAnswer): HTMLElement[] {
  const name = mapping ? mappingName(mapping.name) : "not mapped";
  const title = h("div", { class: "hover-title" }, [mapping ? `${name} ${mapping.perms}` : name]);
  const facts: [string, string][] = [["page", (pointed.address & ~0xfffn).toString(16)], ["time", `${clock(at_ms)} UTC`]];
  if (region) facts.push(...figures(region));
  else facts.push(["memory", "nothing resident"]);
  const list = facts.flatMap(([term, text]) => [h("dt", {}, [term]), h("dd", {}, [text])]);
  return [title, h("dl", {}, list)];
}

function figures(region: CellRegion): [string, string][] {
  const measured = region.interval_ms !== null;
  const of = (part: number): string => share(region.resident_bytes > 0 ? part / region.resident_bytes : 0);
  const facts: [string, string][] = [
    ["region", `${region.start}-${region.end}`],
    ["resident", bytes(region.resident_bytes)],
    ["accessed", measured ? `every ${duration(region.interval_ms ?? 0)}, ${rate(region.rate_hz)}/s` : "not measured yet"],
    ["idle for", measured ? duration(region.idle_ms) : "not known"],
    ["hot", of(region.hot_bytes)],
    ["on huge pages", of(region.huge_bytes)],
    ["at this heat for", duration(region.age_ms)],
  ];
  if (region.peak_hot_bytes > region.hot_bytes) facts.splice(5, 0, ["hot at its peak", of(Math.min(region.peak_hot_bytes, region.resident_bytes))]);
  if (region.unmeasured_bytes > 0) facts.push(["unmeasured", of(region.unmeasured_bytes)]);
  if (region.estimated_bytes > 0) facts.push(["estimated", of(region.estimated_bytes)]);
  return facts;
}
