// The line below the header that says what is wrong: the server is gone, or an answer was an error.
//
// It is a live region: it is read out once when it changes. The seconds up to the next attempt are not part of that.

import type { Live, LinkState } from "../live";
import { button, h, setText } from "./dom";

export class Notice {
  readonly element = h("div", { class: "notice", role: "alert" });
  private readonly text = h("span");
  private readonly wait = h("span", { class: "wait", "aria-hidden": "true" });
  private error = "";
  private state: LinkState | null = null;

  constructor(live: Live) {
    const retry = button("Retry now", "Retry now", () => live.start());
    this.element.append(this.text, this.wait, retry);
    this.element.hidden = true;
    live.states.add((state) => {
      this.state = state;
      this.draw();
    });
    setInterval(() => this.count(), 1000);
  }

  /** Shows the error of a view, or none. */
  show(error: string): void {
    this.error = error;
    this.draw();
  }

  private draw(): void {
    const lost = this.state?.link === "lost";
    const text = lost ? `The connection to the server is lost; the figures below are old (${this.state?.reason ?? ""}).` : this.error;
    this.element.hidden = text === "";
    this.element.classList.toggle("lost", lost);
    setText(this.text, text);
    this.count();
  }

  private count(): void {
    const lost = this.state?.link === "lost";
    const seconds = Math.max(0, Math.ceil(((this.state?.retryAt ?? 0) - performance.now()) / 1000));
    setText(this.wait, lost ? (seconds > 0 ? `Next attempt in ${seconds} s.` : "Connecting ...") : "");
  }
}
