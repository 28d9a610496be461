// Elements in one expression. Text is always set as text, never parsed: names come from the monitored processes.

type Child = Node | string | null;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** `h("button", { class: "x", type: "button" }, ["Reset"], { click: reset })` */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  children: readonly Child[] = [],
  on: Handlers = {},
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  for (const [name, handler] of Object.entries(on)) element.addEventListener(name, handler as EventListener);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number> = {},
  children: readonly Child[] = [],
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

function fill(element: Element, attributes: Record<string, string | number>, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  for (const child of children) if (child !== null) element.append(child);
}

/** Sets a text if it has changed: setting it anyway would end a selection in it. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A button with a text; `label` is read out instead of it if it is a mere sign. */
export function button(text: string, label: string, press: () => void, kind = ""): HTMLButtonElement {
  const attributes: Record<string, string> = { type: "button", class: kind };
  if (label !== text) Object.assign(attributes, { "aria-label": label, title: label });
  return h("button", attributes, [text], { click: press });
}
