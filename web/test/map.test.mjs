// The heat map: colours of known cells, gestures, details, deep links, and the PNG.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, afterEach, before, test } from "node:test";
import { launch, mapReady, NARROW, open, placeOf, screenshot, WIDE } from "./browser.mjs";
import { BLOCK, FIRST_MS, heatOf, MIB, Model, valueOf, WINDOW_MS } from "./model.mjs";
import { TestServer } from "./server.mjs";

const PROCESS = "#/process/812-4711";
const TOUCH = { viewport: NARROW, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };

let browser;
let server;
before(async () => {
  browser = await launch();
});
after(() => browser.close());
afterEach(() => server.stop());

async function visit(query, options, model = new Model()) {
  server = await new TestServer(model).start();
  const opened = await open(browser, server, `${PROCESS}${query ? `?${query}` : ""}`, options);
  await mapReady(opened.page);
  return opened;
}

/** The ramp of the command line, written down once more: a change of the page's palette must be noticed. */
const CONTROL = [[44, 20, 84], [92, 22, 110], [150, 38, 103], [203, 65, 73], [238, 108, 36], [250, 170, 40], [252, 250, 176]];

function colorOf(show, value) {
  if (value === 0) return [16, 16, 20];
  if (value === 1) return [96, 104, 112];
  const at = (value - 2) / 252;
  const heat = { hot: at === 0 ? 0 : 0.2 + 0.8 * at, peak: at === 0 ? 0 : 0.2 + 0.8 * at, interval: at, idle: at === 1 ? 1 : 0.6 * at }[show];
  const below = Math.min(5, Math.floor(heat * 6));
  return CONTROL[below].map((low, i) => Math.round(low + (CONTROL[below + 1][i] - low) * (heat * 6 - below)));
}

/** The plot within the map, in CSS pixels of the page. */
async function plotOf(page) {
  const box = await page.locator(".map canvas").boundingBox();
  const [left, right] = box.width >= 600 ? [96, 148] : [0, 92];
  return { x: box.x + left, y: box.y + 1, width: box.width - left - right, height: box.height - 22, box };
}

/** Colours at times and packed positions, of a viewport. */
async function pixels(page, view, points) {
  const plot = await plotOf(page);
  const places = points.map(({ ms, packed }) => [
    plot.x - plot.box.x + ((ms - view.from) / (view.to - view.from)) * plot.width,
    plot.y - plot.box.y + ((packed - view.lo) / (view.hi - view.lo)) * plot.height,
  ]);
  return page.evaluate((list) => {
    const context = document.querySelector(".map canvas").getContext("2d");
    return list.map(([x, y]) => [...context.getImageData(Math.floor(x * devicePixelRatio), Math.floor(y * devicePixelRatio), 1, 1).data].slice(0, 3));
  }, places);
}

/** Twenty points: middles of blocks and of stays, among them unmeasured and absent memory. */
const POINTS = [
  [0, 300], [1, 30], [1, 590], [2, 30], [2, 150], [3, 90], [4, 150], [5, 210], [9, 450], [9, 510],
  [10, 330], [11, 330], [12, 330], [13, 330], [15, 330], [16, 330], [20, 100], [20, 400], [25, 330], [26, 330],
].map(([block, n]) => ({ block, n, ms: FIRST_MS + (n - 0.5) * WINDOW_MS, packed: (block + 0.5) * BLOCK }));

for (const show of ["hot", "peak", "interval", "idle"]) {
  test(`twenty cells have the colour of their value: ${show}`, async () => {
    const { page, wrong } = await visit(`show=${show}`);
    const view = { from: FIRST_MS, to: FIRST_MS + 599 * WINDOW_MS, lo: 0, hi: 27 * BLOCK };
    const seen = await pixels(page, view, POINTS);
    POINTS.forEach(({ block, n }, i) => {
      assert.deepEqual(seen[i], colorOf(show, valueOf(show, heatOf(block, n))), `block ${block}, snapshot ${n}`);
    });
    assert.deepEqual(wrong, []);
  });
}

test("a deep link shows its times and addresses, with the same colours", async () => {
  const [from, to] = [FIRST_MS + 100_000, FIRST_MS + 260_000];
  // The second block of the heap to the eighth.
  const [lo, hi] = [0x560012000000, 0x56001e000000].map((address) => address.toString(16));
  const { page, wrong } = await visit(`from=${from}&to=${to}&lo=${lo}&hi=${hi}`);
  const view = { from, to, lo: 2 * BLOCK, hi: 8 * BLOCK };
  const points = [[2, 150], [3, 110], [4, 150], [4, 190], [5, 190], [5, 230], [6, 250], [7, 250]].map(([block, n]) => ({
    block, n, ms: FIRST_MS + (n - 0.5) * WINDOW_MS, packed: (block + 0.5) * BLOCK,
  }));
  const seen = await pixels(page, view, points);
  points.forEach(({ block, n }, i) => assert.deepEqual(seen[i], colorOf("hot", valueOf("hot", heatOf(block, n))), `${block} ${n}`));
  assert.equal(await page.getAttribute(".follow", "aria-pressed"), "false");
  assert.deepEqual(wrong, []);
});

/** Waits until the address of the page has changed, and returns what it names. */
async function moved(page, before) {
  await page.waitForFunction((url) => location.href !== url, before);
  await mapReady(page);
  return placeOf(page);
}

test("the wheel zooms both axes, with Ctrl time, with Shift addresses", async () => {
  const { page, wrong } = await visit("");
  const plot = await plotOf(page);
  await page.mouse.move(plot.x + plot.width / 2, plot.y + plot.height / 2);
  let url = page.url();
  await page.mouse.wheel(0, -200);
  const both = await moved(page, url);
  // Following goes on: a span up to the newest snapshot.
  assert.ok(both.span < 599_000 && both.span > 100_000 && both.lo !== null, JSON.stringify(both));
  url = page.url();
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -200);
  await page.keyboard.up("Control");
  const time = await moved(page, url);
  assert.ok(time.span < both.span && time.lo === both.lo && time.hi === both.hi, JSON.stringify(time));
  url = page.url();
  await page.keyboard.down("Shift");
  await page.mouse.wheel(0, -200);
  await page.keyboard.up("Shift");
  const addresses = await moved(page, url);
  assert.equal(addresses.span, time.span);
  assert.ok(BigInt(`0x${addresses.lo}`) > BigInt(`0x${time.lo}`) && BigInt(`0x${addresses.hi}`) < BigInt(`0x${time.hi}`));
  assert.deepEqual(wrong, []);
});

test("dragging moves the map under the pointer, and the minimap moves it too", async () => {
  const query = `from=${FIRST_MS + 200_000}&to=${FIRST_MS + 300_000}`;
  const { page, wrong } = await visit(query);
  const plot = await plotOf(page);
  const url = page.url();
  await page.mouse.move(plot.x + 100, plot.y + 100);
  await page.mouse.down();
  await page.mouse.move(plot.x + 100 + plot.width / 4, plot.y + 100, { steps: 5 });
  await page.mouse.up();
  const after = await moved(page, url);
  assert.ok(Math.abs(after.from - (FIRST_MS + 175_000)) <= 500, `${after.from - FIRST_MS}`);
  assert.ok(Math.abs(after.to - after.from - 100_000) <= 2);
  const mini = await page.locator(".minimap").boundingBox();
  const before = page.url();
  await page.mouse.click(mini.x + mini.width / 2, mini.y + mini.height / 2);
  const centred = await moved(page, before);
  assert.ok(Math.abs((centred.from + centred.to) / 2 - (FIRST_MS + 299_500)) < 2000, JSON.stringify(centred));
  assert.deepEqual(wrong, []);
});

test("keys zoom, move, and reset", async () => {
  const { page, wrong } = await visit("");
  await page.focus(".map");
  let url = page.url();
  await page.keyboard.press("+");
  const near = await moved(page, url);
  assert.ok(Math.abs(near.span - 599_000 / 1.5) <= 1, `${near.span}`);
  url = page.url();
  await page.keyboard.press("ArrowLeft");
  const left = await moved(page, url);
  assert.ok(left.span === null && left.to < FIRST_MS + 599_000, JSON.stringify(left));
  url = page.url();
  await page.keyboard.press("ArrowDown");
  const down = await moved(page, url);
  assert.ok(BigInt(`0x${down.lo}`) > BigInt(`0x${left.lo}`));
  url = page.url();
  await page.keyboard.press("Home");
  const first = await moved(page, url);
  assert.equal(first.from, FIRST_MS);
  url = page.url();
  await page.keyboard.press("-");
  const far = await moved(page, url);
  assert.ok(far.to - far.from > first.to - first.from);
  url = page.url();
  await page.keyboard.press("0");
  assert.deepEqual(await moved(page, url), { from: null, to: null, span: null, lo: null, hi: null, show: null });
  assert.deepEqual(wrong, []);
});

test("fingers drag and pinch", async () => {
  const query = `from=${FIRST_MS + 200_000}&to=${FIRST_MS + 400_000}`;
  const { page, context, wrong } = await visit(query, TOUCH);
  const cdp = await context.newCDPSession(page);
  const plot = await plotOf(page);
  const touch = (type, points) => cdp.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x, y], id) => ({ x: plot.x + x, y: plot.y + y, id })) });
  let url = page.url();
  await touch("touchStart", [[200, 150]]);
  for (let step = 1; step <= 5; step += 1) await touch("touchMove", [[200 - 10 * step, 150]]);
  await touch("touchEnd", []);
  const dragged = await moved(page, url);
  assert.ok(dragged.from > FIRST_MS + 200_000 && Math.abs(dragged.to - dragged.from - 200_000) <= 2, JSON.stringify(dragged));
  url = page.url();
  await touch("touchStart", [[80, 100], [160, 180]]);
  for (let step = 1; step <= 8; step += 1) await touch("touchMove", [[80 - 5 * step, 100 - 5 * step], [160 + 5 * step, 180 + 5 * step]]);
  await touch("touchEnd", []);
  const pinched = await moved(page, url);
  // 80 pixels apart at first, 160 at the end.
  const part = (pinched.to - pinched.from) / (dragged.to - dragged.from);
  assert.ok(part > 0.4 && part < 0.6, `${part}`);
  assert.ok(pinched.lo !== null);
  assert.deepEqual(wrong, []);
});

test("the box at the pointer has address, mapping, rate, idle time and hot share", async () => {
  const { page, wrong } = await visit("");
  const plot = await plotOf(page);
  // The middle of the first block of the heap, which is hot.
  await page.mouse.move(plot.x + plot.width / 2, plot.y + (1.5 / 27) * plot.height);
  await page.waitForSelector(".hover:not([hidden])");
  const text = await page.textContent(".hover");
  for (const part of ["[heap] rw-p", "page560010", "every 20 ms, 50.0/s", "idle for50 ms", "hot100%", "32.0 MiB"]) assert.ok(text.includes(part), `${part}: ${text}`);
  await screenshot(page, "hover");
  await page.mouse.move(plot.x + plot.width / 2, plot.y + (26.5 / 27) * plot.height);
  await page.waitForFunction(() => /not measured yet/.test(document.querySelector(".hover").textContent));
  await page.mouse.move(plot.x + 4, plot.y + (20 / 27) * plot.height);
  await page.waitForFunction(() => /nothing resident/.test(document.querySelector(".hover").textContent));
  await page.mouse.move(plot.x - 60, plot.y);
  await page.waitForSelector(".hover", { state: "hidden" });
  await page.focus(".map");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".hover:not([hidden])");
  await page.keyboard.press("Escape");
  await page.waitForSelector(".hover", { state: "hidden" });
  assert.deepEqual(wrong, []);
});

test("a line of text names the hottest mapping", async () => {
  const { page, wrong } = await visit("");
  // In the heap one block of 16 always is hot, and a wandering one; with the shares of six more, 3.563 of 16: 22.3%. The nearest value of a tile
  // stands for 22.8%, as each is 5.6% more than the one below it.
  await page.waitForFunction(() => /\[heap\], 23% of its measured memory is hot/.test(document.querySelector(".summary").textContent));
  assert.equal(await page.getAttribute(".map", "aria-describedby"), await page.getAttribute(".summary", "id"));
  assert.deepEqual(wrong, []);
});

test("a mapping of the list is shown on the map", async () => {
  const { page, wrong } = await visit("");
  await page.click(".mappings summary");
  const url = page.url();
  await page.click(".mappings tr:has-text('[heap]') button");
  const place = await moved(page, url);
  // A fiftieth of its size more on either side. What lies before it is the program, and after it the anonymous mapping.
  assert.deepEqual([place.lo.slice(0, 4), place.hi.slice(0, 4)], ["55d0", "7f10"]);
  assert.deepEqual(wrong, []);
});

test("the PNG has the map, its axes and the legend", async () => {
  const { page, wrong } = await visit("show=interval");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("button:has-text('PNG')")]);
  assert.equal(download.suggestedFilename(), "isotherm-redis-server-812-interval.png");
  const octets = readFileSync(await download.path());
  assert.equal(octets.subarray(1, 4).toString(), "PNG");
  const map = await page.locator(".map canvas").boundingBox();
  assert.equal(octets.readUInt32BE(16), Math.round((map.width + 32) * 2));
  // The same pixel in the file as on the screen: the middle of the second block of the plot.
  const at = await page.evaluate(async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const height = document.querySelector(".map").clientHeight - 22;
    return [...context.getImageData((16 + 96 + 300) * 2, Math.round((16 + 28 + 1 + (1.5 / 27) * height) * 2), 1, 1).data].slice(0, 3);
  }, octets.toString("base64"));
  assert.deepEqual(at, colorOf("interval", valueOf("interval", heatOf(1, 300))));
  assert.deepEqual(wrong, []);
});

test("the HTML file is of the part that is shown", async () => {
  const { page, wrong } = await visit("show=idle&span=60000");
  await page.click(".mappings summary");
  await page.click(".mappings tr:has-text('[heap]') button");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("a:has-text('HTML')")]);
  assert.equal(download.suggestedFilename(), "isotherm-812.html");
  const asked = new URL(download.url()).searchParams;
  assert.equal(asked.get("show"), "idle");
  assert.equal(Number(asked.get("to")) - Number(asked.get("from")), 60_000);
  // As the address of the page has it, for the same part.
  assert.deepEqual([asked.get("lo").slice(0, 4), asked.get("hi").slice(0, 4)], ["55d0", "7f10"]);
  assert.deepEqual(wrong, []);
});

test("the map fills the screen at both sizes, and with two pixels for each CSS pixel", async () => {
  for (const options of [{ viewport: WIDE, deviceScaleFactor: 2 }, TOUCH]) {
    const { page, wrong } = await visit("", options);
    const view = { from: FIRST_MS, to: FIRST_MS + 599 * WINDOW_MS, lo: 0, hi: 27 * 32 * MIB };
    const seen = await pixels(page, view, POINTS);
    POINTS.forEach(({ block, n }, i) => assert.deepEqual(seen[i], colorOf("hot", valueOf("hot", heatOf(block, n))), `block ${block}, snapshot ${n}`));
    assert.deepEqual(wrong, []);
    if (options !== TOUCH) await server.stop();
  }
});
