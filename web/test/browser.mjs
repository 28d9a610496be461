// A Chromium and pages in it that record what must not happen: errors in the console, requests to another origin.
import { existsSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const OUT = fileURLToPath(new URL("./out", import.meta.url));

export const WIDE = { width: 1280, height: 800 };
export const NARROW = { width: 390, height: 844 };

export function hasBrowser() {
  return existsSync(CHROMIUM);
}

export async function launch() {
  // As root, Chromium has no sandbox of its own. It only loads what the test serves.
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath: CHROMIUM, args: [...args, "--disable-dev-shm-usage", "--enable-precise-memory-info"] });
}

/** Opens a page at a fragment. `wrong` fills with what must not happen. */
export async function open(browser, server, fragment = "", options = {}) {
  const context = await browser.newContext({ viewport: WIDE, colorScheme: "dark", acceptDownloads: true, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => {
    // Chromium advises against reading pixels, which only the tests do.
    const advice = message.text().includes("willReadFrequently");
    if ((message.type() === "error" || message.type() === "warning") && !advice) wrong.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "blob:" && url.origin !== new URL(server.url).origin) wrong.push(`request: ${url}`);
  });
  await page.goto(`${server.url}${fragment}`);
  return { context, page, wrong };
}

/** Waits until the map shows all that the server has. */
export function mapReady(page) {
  return page.waitForSelector('.map[data-state="ready"]', { timeout: 20_000 });
}

export async function screenshot(page, name, options = {}) {
  mkdirSync(OUT, { recursive: true });
  await page.screenshot({ path: join(OUT, `${name}.png`), ...options });
}

/** The viewport that the address of the page names, where it has a range. */
export function placeOf(page) {
  const query = new URLSearchParams(page.url().split("?")[1] ?? "");
  const number = (name) => (query.has(name) ? Number(query.get(name)) : null);
  return { from: number("from"), to: number("to"), span: number("span"), lo: query.get("lo"), hi: query.get("hi"), show: query.get("show") };
}
