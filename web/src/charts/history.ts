// Working set sizes and resident memory over time, drawn by uPlot.
//
// Lines differ in colour and in dashes: colours alone would leave colour-blind readers to guess.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { bytes, clock } from "../format";
import type { HistoryPoint } from "../types";
import { h } from "../ui/dom";
import { color, themes } from "../ui/theme";

const HEIGHT = 150;
/** Label, theme colour, dashes. */
const LINES = [
  ["10 s", "line-a", []],
  ["1 min", "line-b", []],
  ["10 min", "line-c", [8, 3]],
  ["1 h", "line-d", [3, 3]],
  ["resident", "line-e", [10, 3, 2, 3]],
] as const;

const BYTE_STEPS = Array.from({ length: 51 }, (_, i) => 2 ** (i + 10));

export class History {
  readonly element: HTMLElement;
  private readonly host = h("div", { class: "history" });
  private readonly words = h("p", { class: "visually-hidden" });
  private plot: uPlot | null = null;
  private points: readonly HistoryPoint[] = [];
  private readonly observer = new ResizeObserver(() => this.resize());
  private readonly rebuild = (): void => this.build();

  constructor() {
    const title = "Working set over time";
    this.element = h("section", { class: "panel", "aria-label": title }, [h("h2", {}, [title]), this.words, this.host]);
    this.observer.observe(this.host);
    themes.add(this.rebuild);
  }

  set(points: readonly HistoryPoint[]): void {
    this.points = points;
    const last = points.at(-1);
    this.words.textContent = last
      ? `Now: ${bytes(last.wss_10s)} accessed within 10 s, ${bytes(last.wss_1m)} within 1 min, ${bytes(last.wss_10m)} within 10 min, ` +
        `${bytes(last.wss_1h)} within 1 h, ${bytes(last.resident)} resident.`
      : "Nothing yet.";
    if (!this.plot) return this.build();
    this.plot.setData(this.data());
    this.showNewest(this.plot);
  }

  destroy(): void {
    themes.delete(this.rebuild);
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  private data(): uPlot.AlignedData {
    const of = (pick: (point: HistoryPoint) => number): number[] => this.points.map(pick);
    return [
      of((p) => p.at_ms / 1000),
      of((p) => p.wss_10s),
      of((p) => p.wss_1m),
      of((p) => p.wss_10m),
      of((p) => p.wss_1h),
      of((p) => p.resident),
    ];
  }

  /** The legend shows the values at the pointer, and the newest while there is none. */
  private showNewest(plot: uPlot): void {
    if ((plot.cursor.left ?? -1) < 0 && this.points.length > 0) plot.setLegend({ idx: this.points.length - 1 });
  }

  private resize(): void {
    const width = this.host.clientWidth;
    if (width > 0 && this.plot && this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    else if (width > 0 && !this.plot) this.build();
  }

  /** uPlot takes colours once, so a change of theme needs a new one. */
  private build(): void {
    const width = this.host.clientWidth;
    if (width === 0) return;
    this.plot?.destroy();
    const axis = { stroke: color("muted"), grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("grid"), width: 1 }, font: "11px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      padding: [8, 14, 0, 0],
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, __, top) => [0, Math.max(top * 1.05, 4096)] } },
      axes: [
        { ...axis, space: 70, size: 26, values: (_, at) => at.map((seconds) => clock(seconds * 1000)) },
        { ...axis, size: 70, incrs: BYTE_STEPS, values: (_, at) => at.map(bytes) },
      ],
      series: [
        { label: "UTC", value: (_, seconds: number | null) => (seconds === null ? "-" : clock(seconds * 1000)) },
        ...LINES.map(([label, stroke, dash]) => ({
          label,
          stroke: color(stroke),
          width: 1.5,
          dash: [...dash],
          points: { show: false },
          value: (_: uPlot, value: number | null) => (value === null ? "-" : bytes(value)),
        })),
      ],
    };
    this.plot = new uPlot(options, this.data(), this.host);
    this.showNewest(this.plot);
  }
}
