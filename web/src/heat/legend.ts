// The legend of a map, as a canvas: below the map, and in the PNG.

import { css, rampColor, valueColor } from "../palette";
import { extraTicks, scaleTitle, ticks } from "../scale";
import type { Show } from "../types";
import { h } from "../ui/dom";
import { color, themes } from "../ui/theme";
import type { Rect, Theme } from "./paint";

/** Of a legend, in CSS pixels. */
export const LEGEND_HEIGHT = 44;
const RAMP_HEIGHT = 10;
const FONT = "11px system-ui, sans-serif";
const EXTRA_WIDTH = 84;
const MAX_RAMP = 320;

export function paintLegend(context: CanvasRenderingContext2D, at: Rect, show: Show, theme: Theme): void {
  context.font = FONT;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = theme.muted;
  context.fillText(scaleTitle(show), at.x, at.y + 6, at.width);
  const extras = extraTicks(show);
  const width = Math.min(MAX_RAMP, at.width - extras.length * EXTRA_WIDTH);
  const top = at.y + 15;
  for (let x = 0; x < width; x += 1) {
    context.fillStyle = css(rampColor(show, Math.min(0.999, Math.max(0.001, x / (width - 1)))));
    context.fillRect(at.x + x, top, 1.5, RAMP_HEIGHT);
  }
  context.fillStyle = theme.text;
  for (const tick of ticks(show)) {
    const half = context.measureText(tick.label).width / 2;
    const x = at.x + Math.min(Math.max(tick.at * width, half), width - half);
    context.fillText(tick.label, x - half, top + RAMP_HEIGHT + 9);
  }
  extras.forEach((extra, i) => {
    const x = at.x + width + 16 + i * EXTRA_WIDTH;
    const color = valueColor(show, extra.value);
    if (color) context.fillStyle = css(color);
    context.fillRect(x, top, 24, RAMP_HEIGHT);
    context.strokeStyle = theme.line;
    context.strokeRect(x + 0.5, top + 0.5, 23, RAMP_HEIGHT - 1);
    context.fillStyle = theme.text;
    context.fillText(extra.label, x, top + RAMP_HEIGHT + 9);
  });
}

/** The legend on the screen, as wide as the page lets it be. */
export class LegendStrip {
  readonly element = h("div", { class: "legend" });
  private readonly canvas = h("canvas", { role: "img" });
  private show: Show = "hot";
  private readonly redraw = (): void => this.draw();
  private readonly observer = new ResizeObserver(this.redraw);

  constructor() {
    this.element.append(this.canvas);
    this.observer.observe(this.element);
    themes.add(this.redraw);
  }

  destroy(): void {
    this.observer.disconnect();
    themes.delete(this.redraw);
  }

  set(show: Show): void {
    if (this.show === show && this.canvas.hasAttribute("aria-label")) return;
    this.show = show;
    const words = [...extraTicks(show), ...ticks(show)].map((tick) => tick.label);
    this.canvas.setAttribute("aria-label", `Colours: ${scaleTitle(show)}; ${words.join(", ")}`);
    this.draw();
  }

  private draw(): void {
    const [width, scale] = [this.element.clientWidth, window.devicePixelRatio];
    const context = this.canvas.getContext("2d");
    if (width === 0 || !context) return;
    [this.canvas.width, this.canvas.height] = [Math.round(width * scale), Math.round(LEGEND_HEIGHT * scale)];
    context.scale(scale, scale);
    const theme = { text: color("text"), muted: color("muted"), line: color("line") };
    paintLegend(context, { x: 0, y: 0, width, height: LEGEND_HEIGHT }, this.show, theme);
  }
}
