// The buttons above the map: what the colours show, zoom of each axis, and the rest that gestures do as well.

import { scaleName } from "../scale";
import { SHOWS, type Show } from "../types";
import { button, h } from "../ui/dom";
import { ZOOM_STEP } from "./gestures";

export interface ToolbarEvents {
  show: (show: Show) => void;
  /** Factors of time and of addresses. */
  zoom: (factors: [number, number]) => void;
  reset: () => void;
  follow: () => void;
  png: () => void;
  /** Where the map is as a file; asked for when it is about to be followed. */
  html: () => string;
}

export class Toolbar {
  readonly element: HTMLElement;
  private readonly shows: HTMLButtonElement[];
  private readonly follow: HTMLButtonElement;
  private readonly html = h("a", { class: "button", download: "", title: "Download as HTML", "aria-label": "Download as HTML" }, ["HTML"]);

  constructor(events: ToolbarEvents) {
    this.html.href = events.html();
    for (const event of ["pointerdown", "focus", "click"] as const) this.html.addEventListener(event, () => (this.html.href = events.html()));
    this.shows = SHOWS.map((show) => button(scaleName(show), scaleName(show), () => events.show(show)));
    this.follow = button("Follow", "Follow the newest snapshot", events.follow, "follow");
    const zoom = (name: string, factors: (factor: number) => [number, number]): HTMLElement =>
      h("div", { class: "group", role: "group", "aria-label": `${name} zoom` }, [
        h("span", { class: "muted" }, [name]),
        button("\u2212", `Show more ${name.toLowerCase()}`, () => events.zoom(factors(ZOOM_STEP))),
        button("+", `Show less ${name.toLowerCase()}`, () => events.zoom(factors(1 / ZOOM_STEP))),
      ]);
    this.element = h("div", { class: "toolbar heat-tools", role: "toolbar", "aria-label": "Heat map" }, [
      h("div", { class: "group segmented", role: "group", "aria-label": "Colours show" }, this.shows),
      zoom("Time", (factor) => [factor, 1]),
      zoom("Addresses", (factor) => [1, factor]),
      h("div", { class: "group" }, [
        button("Show all", "Show all", events.reset),
        this.follow,
        button("PNG", "Download as PNG", events.png),
        this.html,
      ]),
    ]);
  }

  set(show: Show, follow: boolean, live: boolean): void {
    this.shows.forEach((control, i) => control.setAttribute("aria-pressed", String(SHOWS[i] === show)));
    this.follow.setAttribute("aria-pressed", String(follow));
    // A recording does not grow.
    this.follow.hidden = !live;
  }
}
