// Dark and light: as the system has it, unless the reader has chosen. The choice is kept in the browser.
//
// Colours are custom properties of app.css. Canvases read them, and draw again when `themes` fires.

import { h } from "./dom";

const KEY = "isotherm-theme";
const CHOICES = ["auto", "dark", "light"] as const;
type Choice = (typeof CHOICES)[number];

/** Called after the colours have changed. */
export const themes = new Set<() => void>();

// Storage may be forbidden: then the choice lasts as long as the page.
function stored(): Choice {
  try {
    return CHOICES.find((choice) => choice === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto";
  }
}

function store(choice: Choice): void {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    return;
  }
}

function apply(choice: Choice): void {
  const dark = choice === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : choice === "dark";
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
  for (const changed of themes) changed();
}

/** Applies the stored choice, and returns the field that changes it. */
export function themeField(): HTMLElement {
  let choice = stored();
  apply(choice);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(choice));
  const options = CHOICES.map((name) => h("option", { value: name }, [name[0]?.toUpperCase() + name.slice(1)]));
  const field = h("select", { "aria-label": "Colour theme" }, options);
  field.value = choice;
  field.addEventListener("change", () => {
    choice = CHOICES.find((name) => name === field.value) ?? "auto";
    store(choice);
    apply(choice);
  });
  return field;
}

/** A colour of the current theme, as a canvas takes it. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
