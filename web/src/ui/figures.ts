// The small pictures of tables: memory by class as a stacked bar, and a working set as a line.

import { bytes } from "../format";
import type { Classes } from "../types";
import { svg } from "./dom";

export const CLASS_NAMES = ["hot", "warm", "cold", "idle", "unmeasured"] as const satisfies readonly (keyof Classes)[];

/** What the classes mean: the default thresholds of the command line. */
export const CLASS_MEANINGS: Readonly<Record<keyof Classes, string>> = {
  hot: "accessed at least every 1 s",
  warm: "every 10 s",
  cold: "every 60 s",
  idle: "less often",
  unmeasured: "resident, but nothing is known yet",
};

/** All classes in words. */
export function classWords(classes: Classes): string {
  return CLASS_NAMES.filter((name) => classes[name] > 0)
    .map((name) => `${name} ${bytes(classes[name])}`)
    .join(", ");
}

/** Draws the stacked bar into `host`. */
export function drawBar(host: Element, classes: Classes): void {
  const words = classWords(classes) || "no resident memory";
  // Most rows of a table stay as they were.
  if (host.getAttribute("data-key") === words) return;
  host.setAttribute("data-key", words);
  const total = CLASS_NAMES.reduce((sum, name) => sum + classes[name], 0);
  const picture = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", class: "bar", role: "img", "aria-label": words });
  picture.append(svg("title", {}, [words]));
  picture.append(svg("rect", { x: 0, y: 0, width: 100, height: 10, class: "bar-rest" }));
  let x = 0;
  for (const name of CLASS_NAMES) {
    const share = total > 0 ? (classes[name] / total) * 100 : 0;
    if (share > 0) picture.append(svg("rect", { x: x.toFixed(3), y: 0, width: share.toFixed(3), height: 10, class: `class-${name}` }));
    x += share;
  }
  host.replaceChildren(picture);
}

const SPARK_WIDTH = 88;
const SPARK_HEIGHT = 18;

/** Draws a line from zero to the largest value into `host`. */
export function drawSpark(host: Element, values: readonly number[], what: string): void {
  const key = values.join(" ");
  if (host.getAttribute("data-key") === key) return;
  host.setAttribute("data-key", key);
  const top = Math.max(...values, 1);
  const step = SPARK_WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(SPARK_HEIGHT - 1 - (value / top) * (SPARK_HEIGHT - 3)).toFixed(1)}`);
  const words = values.length > 0 ? `${what}, ${bytes(Math.min(...values))} to ${bytes(Math.max(...values))}` : `${what}: nothing yet`;
  const picture = svg("svg", { viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`, class: "spark", role: "img", "aria-label": words });
  picture.append(svg("title", {}, [words]));
  if (points.length > 1) picture.append(svg("polyline", { points: points.join(" ") }));
  host.replaceChildren(picture);
}
