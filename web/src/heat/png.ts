// The map as a PNG file: title, map with its axes, legend. Twice the resolution of CSS pixels on any screen.

import { utc } from "../format";
import type { Show } from "../types";
import { color } from "../ui/theme";
import { LEGEND_HEIGHT, paintLegend } from "./legend";
import type { HeatMap } from "./map";
import { paint } from "./paint";

const SCALE = 2;
const MARGIN = 16;
const TITLE_HEIGHT = 28;

/** The picture of what a map shows; null if it shows nothing yet. */
export function picture(map: HeatMap, title: string, show: Show): HTMLCanvasElement | null {
  const scene = map.scene(SCALE);
  const [width, height] = [map.canvas.clientWidth, map.canvas.clientHeight];
  const [canvas, inner] = [document.createElement("canvas"), document.createElement("canvas")];
  const context = canvas.getContext("2d");
  const innerContext = inner.getContext("2d");
  if (!scene || !context || !innerContext) return null;
  [inner.width, inner.height] = [Math.round(width * SCALE), Math.round(height * SCALE)];
  paint(innerContext, scene);
  const total = TITLE_HEIGHT + height + LEGEND_HEIGHT + 2 * MARGIN;
  [canvas.width, canvas.height] = [Math.round((width + 2 * MARGIN) * SCALE), Math.round(total * SCALE)];
  context.fillStyle = color("panel");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(inner, MARGIN * SCALE, (MARGIN + TITLE_HEIGHT) * SCALE);
  context.scale(SCALE, SCALE);
  context.fillStyle = scene.theme.text;
  context.font = "600 14px system-ui, sans-serif";
  const stretch = `${utc(scene.view.fromMs)} to ${utc(scene.view.toMs)} UTC`;
  context.fillText(`${title}, ${stretch}`, MARGIN, MARGIN + 12, width);
  const left = MARGIN + scene.plot.x;
  const legend = { x: left, y: MARGIN + TITLE_HEIGHT + height + 6, width: width - scene.plot.x, height: LEGEND_HEIGHT };
  paintLegend(context, legend, show, scene.theme);
  return canvas;
}

/** Hands a picture to the browser as a download. */
export function download(canvas: HTMLCanvasElement, name: string): void {
  canvas.toBlob((blob) => {
    if (!blob) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    // The browser has begun to read it by then.
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }, "image/png");
}
