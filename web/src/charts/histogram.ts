// Resident memory by access interval or by idle time: one bar for each octave.
//
// SVG, and not a canvas: the browser scales it, and each bar can have a title.

import { bytes, duration } from "../format";
import { h, svg } from "../ui/dom";

export interface Bar {
  /** Milliseconds; null: unmeasured. */
  ms: number | null;
  bytes: number;
}

const [WIDTH, HEIGHT] = [320, 112];
const [TOP, BOTTOM] = [14, 16];
const LABELS = 4;

/** A bar for each octave from the first to the last that holds memory. The server may omit empty ones. */
export function octaves(bars: readonly Bar[]): Bar[] {
  const used = bars.filter((bar) => bar.bytes > 0);
  const timed = used.flatMap((bar) => (bar.ms === null ? [] : [{ octave: Math.round(Math.log2(bar.ms)), bar }]));
  const numbers = timed.map(({ octave }) => octave);
  const shown: Bar[] = [];
  for (let octave = Math.min(...numbers); octave <= Math.max(...numbers); octave += 1) {
    shown.push(timed.find((one) => one.octave === octave)?.bar ?? { ms: 2 ** octave, bytes: 0 });
  }
  return [...shown, ...used.filter((bar) => bar.ms === null)];
}

function words(bar: Bar, of: string): string {
  return bar.ms === null ? `unmeasured: ${bytes(bar.bytes)}` : `${of} ${duration(bar.ms)}: ${bytes(bar.bytes)}`;
}

export class Histogram {
  readonly element: HTMLElement;
  private readonly host = h("div", { class: "histogram" });
  private key = "";

  constructor(title: string, private readonly of: string) {
    this.element = h("section", { class: "panel", "aria-label": title }, [h("h2", {}, [title]), this.host]);
  }

  set(all: readonly Bar[]): void {
    const bars = octaves(all);
    const key = bars.map((bar) => `${bar.ms}:${bar.bytes}`).join(" ");
    if (key === this.key) return;
    this.key = key;
    if (bars.length === 0) {
      this.host.replaceChildren(h("p", { class: "muted" }, ["No resident memory."]));
      return;
    }
    const top = Math.max(...bars.map((bar) => bar.bytes));
    const largest = bars.reduce((a, b) => (b.bytes > a.bytes ? b : a));
    const label = `Resident memory by ${this.of}. Most is at ${words(largest, this.of)}.`;
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
    const step = WIDTH / bars.length;
    bars.forEach((bar, i) => picture.append(this.bar(bar, i * step, step, bar.bytes / top)));
    picture.append(svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM, class: "axis" }));
    picture.append(svg("text", { x: 0, y: 9 }, [`largest ${bytes(top)}`]));
    picture.append(...this.labels(bars, step));
    this.host.replaceChildren(picture);
  }

  private bar(bar: Bar, x: number, step: number, part: number): SVGElement {
    const room = HEIGHT - TOP - BOTTOM;
    // A little memory is still seen.
    const height = bar.bytes > 0 ? Math.max(1.5, part * room) : 0;
    const gap = Math.min(2, step / 5);
    const place = { x: (x + gap / 2).toFixed(1), width: (step - gap).toFixed(1) };
    const picture = svg("g", {}, [svg("title", {}, [words(bar, this.of)])]);
    picture.append(svg("rect", { ...place, y: 0, height: HEIGHT - BOTTOM, class: "touch" }));
    picture.append(svg("rect", { ...place, y: (HEIGHT - BOTTOM - height).toFixed(1), height: height.toFixed(1), class: bar.ms === null ? "bar-unmeasured" : "bar-timed" }));
    return picture;
  }

  private labels(bars: readonly Bar[], step: number): SVGElement[] {
    const timed = bars.filter((bar) => bar.ms !== null).length;
    const every = Math.max(1, Math.ceil(timed / LABELS));
    return bars.flatMap((bar, i) => {
      if (bar.ms === null) return [svg("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, ["unmeas."])];
      // The last label is that of unmeasured memory.
      if (i % every !== 0 || (timed < bars.length && (i + 0.5) * step > WIDTH - 70)) return [];
      const anchor = i === 0 ? "start" : "middle";
      return [svg("text", { x: (i === 0 ? 0 : (i + 0.5) * step).toFixed(1), y: HEIGHT - 4, "text-anchor": anchor }, [duration(bar.ms)])];
    });
  }
}
