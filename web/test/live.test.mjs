// A process that goes on running: new columns, a new layout, a server that stops, and a recording that does not grow.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { launch, mapReady, open, placeOf, screenshot } from "./browser.mjs";
import { FIRST_MS, Model, WINDOW_MS } from "./model.mjs";
import { TestServer } from "./server.mjs";

const PROCESS = "#/process/812-4711";
const HOT = [252, 250, 176];
const COLD = [44, 20, 84];

let browser;
let server;
before(async () => {
  browser = await launch();
});
after(() => browser.close());
afterEach(() => server.stop());

async function visit(query, model) {
  server = await new TestServer(model).start();
  const opened = await open(browser, server, `${PROCESS}${query ? `?${query}` : ""}`);
  await mapReady(opened.page);
  return opened;
}

/** Waits until a pixel of the plot, at fractions of it, has a color. */
function becomes(page, at, color) {
  return page.waitForFunction(
    ([[x, y], wanted]) => {
      const canvas = document.querySelector(".map canvas");
      const [width, height] = [canvas.clientWidth - 96 - 148, canvas.clientHeight - 22];
      const data = canvas.getContext("2d").getImageData(Math.floor((96 + x * width) * devicePixelRatio), Math.floor((1 + y * height) * devicePixelRatio), 1, 1).data;
      return wanted.every((part, i) => data[i] === part);
    },
    [at, color],
    { timeout: 20_000 },
  );
}

/** The row in the middle of a block, of 27. */
const row = (block, blocks = 27) => (block + 0.5) / blocks;
const NEWEST = 0.997;

test("columns are added while the view follows, a few at a time", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 600 }));
  // In snapshot 599 the block that wanders is in its tenth stay: block 3. From 600 on it is block 4.
  await becomes(page, [NEWEST, row(3)], HOT);
  await becomes(page, [NEWEST, row(4)], COLD);
  const asked = server.requests.length;
  server.tiles = [];
  for (let i = 0; i < 15; i += 1) {
    server.tick();
    await page.waitForTimeout(30);
  }
  await becomes(page, [NEWEST, row(4)], HOT);
  await mapReady(page);
  assert.ok(server.requests.length - asked < 120, `${server.requests.length - asked} requests for 15 snapshots`);
  // A column of 600 s on 600 pixels is about a second. One tile or two are new, and the minimap has 320 columns.
  const whole = server.tiles.filter(({ columns }) => columns === 256).length;
  const few = server.tiles.filter(({ columns }) => columns <= 16).length;
  assert.ok(few >= 4 && whole <= 2, JSON.stringify(server.tiles));
  assert.equal(placeOf(page).span, null);
  assert.deepEqual(wrong, []);
});

test("a view of the past is not read again", async () => {
  const { page, wrong } = await visit(`from=${FIRST_MS + 60_000}&to=${FIRST_MS + 180_000}`, new Model({ snapshots: 600 }));
  const [figures, end] = [await page.textContent(".side p"), server.model.newestMs];
  server.tiles = [];
  server.tick(30);
  await page.waitForFunction((text) => document.querySelector(".side p").textContent !== text, figures);
  await mapReady(page);
  // The minimap and the line of text end at the newest snapshot.
  assert.deepEqual(server.tiles.filter(({ to }) => to < end), []);
  assert.deepEqual(wrong, []);
});

test("details under a pointer that rests follow the map", async () => {
  const { page, wrong } = await visit("span=60000", new Model({ snapshots: 600 }));
  const box = await page.locator(".map canvas").boundingBox();
  await page.mouse.move(box.x + 96 + (box.width - 96 - 148) / 2, box.y + 100);
  await page.waitForFunction(() => /time14:22:(49|50) UTC/.test(document.querySelector(".hover").textContent));
  server.tick(20);
  await page.waitForFunction(() => /time14:23:(09|10) UTC/.test(document.querySelector(".hover").textContent));
  assert.deepEqual(wrong, []);
});

test("a young map grows until it shows ten minutes", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 121 }));
  assert.match(await page.textContent(".range"), /^14:13:20 to 14:15:20 UTC, 2 min, following$/);
  server.tick(60);
  await page.waitForFunction(() => /^14:13:20 to 14:16:20 UTC, 3 min, following$/.test(document.querySelector(".range").textContent));
  server.tick(900);
  await page.waitForFunction(() => /^14:21:20 to 14:31:20 UTC, 10 min, following$/.test(document.querySelector(".range").textContent));
  assert.equal(placeOf(page).span, null);
  assert.deepEqual(wrong, []);
});

test("a view that was moved back stays where it is, and End follows again", async () => {
  const { page, wrong } = await visit("span=120000", new Model({ snapshots: 600 }));
  await page.focus(".map");
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => location.href.includes("from="));
  const before = placeOf(page);
  const range = await page.textContent(".range");
  const figures = await page.textContent(".side p");
  server.tick(30);
  // The charts show the new snapshots.
  await page.waitForFunction((text) => document.querySelector(".side p").textContent !== text, figures);
  await mapReady(page);
  assert.deepEqual([placeOf(page), await page.textContent(".range")], [before, range]);
  assert.equal(await page.getAttribute(".follow", "aria-pressed"), "false");
  await page.keyboard.press("End");
  await page.waitForFunction(() => /to 14:23:49 UTC.*following/.test(document.querySelector(".range").textContent));
  await becomes(page, [NEWEST, row(4)], HOT);
  assert.deepEqual(wrong, []);
});

test("snapshots without the process leave its map as it is", async () => {
  const { page, wrong } = await visit("", new Model());
  // Events come one after the other, so all that the first one changes is seen before what the second one changes.
  await page.evaluate(() => {
    globalThis.ranges = [];
    const range = document.querySelector(".range");
    new MutationObserver(() => ranges.push(range.textContent)).observe(range, { childList: true, characterData: true, subtree: true });
  });
  server.tick(5, ["1-1"]);
  server.tick(1);
  await page.waitForFunction(() => globalThis.ranges.length > 0);
  assert.match((await page.evaluate(() => globalThis.ranges))[0], /to 14:23:25 UTC/);
  assert.deepEqual(wrong, []);
});

test("a new layout is read, and the view keeps its addresses", async () => {
  // Blocks 2 to 9 of the heap: the wandering one fills an eighth.
  const addresses = "lo=560012000000&hi=560022000000";
  const { page, wrong } = await visit(addresses, new Model({ snapshots: 600 }));
  await becomes(page, [NEWEST, 1.5 / 8], HOT);
  const before = placeOf(page);
  server.model.shifted = true;
  server.tick();
  await becomes(page, [NEWEST, 1.5 / 8], COLD);
  await becomes(page, [NEWEST, 2.5 / 8], HOT);
  await mapReady(page);
  assert.deepEqual([placeOf(page).lo, placeOf(page).hi], [before.lo, before.hi]);
  await page.click("button:has-text('Show all')");
  // 64 MiB were added before all others: two blocks.
  await becomes(page, [0.5, row(1 + 2, 29)], HOT);
  // The answer 409 is part of the contract. Chromium writes each into its console.
  assert.deepEqual(wrong.filter((line) => !/status of 409/.test(line)), []);
});

test("the loss of the server is shown, and all goes on when it is back", async () => {
  const { page } = await visit("", new Model({ snapshots: 600 }));
  await server.stop();
  await page.waitForSelector(".notice.lost:not([hidden])");
  assert.match(await page.textContent(".notice"), /The connection to the server is lost/);
  assert.equal(await page.textContent(".link"), "not connected");
  await screenshot(page, "lost");
  server.model.snapshots += 10;
  await server.start();
  await page.click("button:has-text('Retry now')");
  await page.waitForSelector(".notice", { state: "hidden" });
  await page.waitForSelector('.link[data-link="live"]');
  await page.waitForFunction(() => /to 14:23:29 UTC/.test(document.querySelector(".range").textContent));
  server.tick(3);
  await becomes(page, [NEWEST, row(4)], HOT);
});

/** Adds snapshots until something is done. */
async function ticking(everyMs, done) {
  const timer = setInterval(() => server.tick(), everyMs);
  try {
    await done();
  } finally {
    clearInterval(timer);
  }
}

test("figures of a process go on where an answer takes longer than they are read", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 600 }));
  server.slow = { prefix: "api/process", ms: 2500 };
  const changes = async () => {
    const figures = await page.textContent(".side p");
    await page.waitForFunction((text) => document.querySelector(".side p").textContent !== text, figures, { timeout: 15_000 });
  };
  await ticking(300, async () => {
    for (let i = 0; i < 3; i += 1) await changes();
  });
  assert.deepEqual(wrong, []);
});

test("the overview is shown where an answer takes longer than a window", async () => {
  server = await new TestServer().start();
  server.slow = { prefix: "api/overview", ms: 1500 };
  const { page, wrong } = await open(browser, server);
  await ticking(300, async () => {
    await page.waitForFunction(() => /14:23:/.test(document.querySelector(".host")?.textContent ?? ""), null, { timeout: 15_000 });
    const time = await page.textContent(".host");
    await page.waitForFunction((text) => document.querySelector(".host").textContent !== text, time, { timeout: 15_000 });
  });
  assert.deepEqual(wrong, []);
});

test("a clock that is set back takes the map with it", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 600 }));
  await becomes(page, [NEWEST, row(3)], HOT);
  server.model.snapshots -= 301;
  server.tick();
  // In snapshot 299 it is block 6.
  await becomes(page, [NEWEST, row(6)], HOT);
  await becomes(page, [NEWEST, row(3)], COLD);
  assert.match(await page.textContent(".range"), /to 14:18:19 UTC.*, following$/);
  server.tick(2);
  await page.waitForFunction(() => /to 14:18:21 UTC/.test(document.querySelector(".range").textContent));
  assert.deepEqual(wrong, []);
});

test("a process that has ended is not shown as if it went on", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 600 }));
  assert.match(await page.textContent(".range"), /following$/);
  server.model.ended = true;
  server.tick(1, ["1-1"]);
  await page.waitForFunction(() => /^ended; at the end /.test(document.querySelector(".process-head p").textContent));
  assert.doesNotMatch(await page.textContent(".range"), /following/);
  // It may come back.
  server.model.ended = false;
  server.tick();
  await page.waitForFunction(() => !/^ended/.test(document.querySelector(".process-head p").textContent));
  assert.deepEqual(wrong, []);
});

test("no column is left out where a snapshot comes while a tile is read", async () => {
  // Tiles of a few windows.
  const { page, wrong } = await visit("span=8000", new Model({ snapshots: 600 }));
  const blank = () =>
    page.evaluate(() => {
      const canvas = document.querySelector(".map canvas");
      const [width, height] = [canvas.clientWidth - 96 - 148, canvas.clientHeight - 22];
      const line = canvas.getContext("2d").getImageData(96 * devicePixelRatio, Math.floor((1 + (2.5 / 27) * height) * devicePixelRatio), Math.floor((width - 1) * devicePixelRatio), 1).data;
      const colors = new Set();
      for (let x = 0; x < line.length; x += 4) colors.add(`${line[x]} ${line[x + 1]} ${line[x + 2]}`);
      return [...colors];
    });
  for (let i = 0; i < 12; i += 1) {
    server.tick();
    // The next one is there before the tiles of this one are read.
    server.model.snapshots += 1;
    await page.waitForTimeout(60);
    server.tick(0);
    const time = new Date(server.model.newestMs).toISOString().slice(11, 19);
    await page.waitForFunction((text) => document.querySelector(".range").textContent.includes(`to ${text} UTC`), time);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await mapReady(page);
    const colors = await blank();
    assert.equal(colors.length, 1, `${colors}`);
  }
  assert.deepEqual(wrong, []);
});

test("without a stream, the page asks from time to time", async () => {
  server = await new TestServer().start();
  server.failure = { prefix: "api/live", status: 429 };
  const { page } = await open(browser, server);
  await page.waitForSelector('.link[data-link="polling"]');
  server.model.snapshots += 4;
  await page.waitForFunction(() => /14:23:23/.test(document.querySelector(".host").textContent));
  server.failure = null;
  await page.waitForSelector('.link[data-link="live"]');
  assert.equal(await page.isHidden(".notice"), true);
});

test("a tab that is not seen gives up its connection, and catches up later", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 600 }));
  const show = (state) =>
    page.evaluate((value) => {
      Object.defineProperty(document, "visibilityState", { configurable: true, get: () => value });
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
  await show("hidden");
  for (let i = 0; server.listeners.size > 0 && i < 100; i += 1) await page.waitForTimeout(50);
  assert.equal(server.listeners.size, 0);
  server.tick(10);
  await show("visible");
  await page.waitForFunction(() => /to 14:23:29 UTC/.test(document.querySelector(".range").textContent));
  await becomes(page, [NEWEST, row(4)], HOT);
  assert.equal(server.listeners.size, 1);
  assert.deepEqual(wrong, []);
});

test("a recording is shown whole, and has nothing to follow", async () => {
  const { page, wrong } = await visit("", new Model({ snapshots: 1800, mode: "recording" }));
  assert.match(await page.textContent(".range"), /14:13:20 to 14:43:19 UTC, 30 min$/);
  assert.equal(await page.isHidden(".follow"), true);
  await page.focus(".map");
  await page.keyboard.press("+");
  await page.waitForFunction(() => location.href.includes("from="));
  const { from, to } = placeOf(page);
  assert.ok(Math.abs(to - from - (1799 * WINDOW_MS) / 1.5) <= 2);
  assert.deepEqual(wrong, []);
});
