// Measures the page: first paint, zooming, memory of the tab while columns are added, and the size of dist.
//
// usage: node test/measure.mjs [URL SPAN_MS]      (npm run measure; about 2 minutes)
//
// With a URL: of the `isotherm-serve` at that address instead of the test server, of its largest process over SPAN_MS. Snapshots come from
// its monitor; the line "next N" asks the caller for N of them at a quick pace.
//
// Ends with a RESULT line. The figures are those of the machine and of the browser on it, without a GPU if it has none.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { launch, mapReady, open } from "./browser.mjs";
import { Model } from "./model.mjs";
import { TestServer } from "./server.mjs";

const LOADS = 7;
const WHEEL_STEPS = 100;
/** Ten minutes of snapshots, one a second. */
const SNAPSHOTS = 600;
const TICK_MS = 60;

/** The test server, which adds snapshots itself. */
class Modelled {
  constructor() {
    this.server = new TestServer(new Model({ snapshots: 3600 }));
    this.fragment = `#/process/${this.server.model.id}`;
  }

  get url() {
    return this.server.url;
  }

  async start() {
    await this.server.start();
    return this;
  }

  async next(count) {
    for (let i = 0; i < count; i += 1) {
      this.server.tick();
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
  }

  stop() {
    return this.server.stop();
  }
}

/** A server that runs already, and is left running. */
class Running {
  constructor(url, spanMs) {
    this.url = url;
    this.spanMs = spanMs;
  }

  async start() {
    const response = await fetch(`${this.url}api/overview`);
    if (!response.ok) throw new Error(`read ${this.url}api/overview: status ${response.status}`);
    const { processes } = await response.json();
    const [largest] = processes.sort((a, b) => b.resident_bytes - a.resident_bytes);
    this.fragment = `#/process/${largest.id}?span=${this.spanMs}`;
    return this;
  }

  /** Waits until so many have been announced. */
  async next(count) {
    const response = await fetch(`${this.url}api/live`);
    console.log(`next ${count}`);
    const text = response.body.pipeThrough(new TextDecoderStream());
    let seen = 0;
    let rest = "";
    for await (const part of text) {
      const lines = (rest + part).split("\n");
      rest = lines.pop();
      seen += lines.filter((line) => line.startsWith("event: snapshot")).length;
      if (seen >= count) return;
    }
    throw new Error(`read ${this.url}api/live: it ended after ${seen} of ${count} snapshots`);
  }

  async stop() {}
}

function quantile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}

/** Milliseconds from the request to the first text, and to a complete map. */
async function firstPaint(browser, server) {
  const [paints, maps] = [[], []];
  for (let i = 0; i < LOADS; i += 1) {
    const { page, context } = await open(browser, server, server.fragment);
    await mapReady(page);
    maps.push(await page.evaluate(() => performance.now()));
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    await context.close();
  }
  return { paint: quantile(paints, 0.5), map: quantile(maps, 0.5) };
}

/** Milliseconds from each turn of the wheel to the end of the frame that shows it. */
async function zooming(browser, server) {
  const { page, context } = await open(browser, server, server.fragment);
  await mapReady(page);
  await page.evaluate(() => {
    globalThis.frames = [];
    // In the frame that draws the zoom; the message comes after all that the frame does.
    addEventListener("wheel", (event) => {
      requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => globalThis.frames.push(performance.now() - event.timeStamp);
        channel.port2.postMessage(null);
      });
    }, { capture: true, passive: true });
  });
  const box = await page.locator(".map canvas").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 3);
  for (let i = 0; i < WHEEL_STEPS; i += 1) {
    await page.mouse.wheel(0, i % 40 < 20 ? -60 : 60);
    await page.waitForFunction((count) => globalThis.frames.length > count, i);
  }
  const frames = await page.evaluate(() => globalThis.frames);
  const start = performance.now();
  await page.mouse.wheel(0, -300);
  await page.waitForTimeout(20);
  await mapReady(page);
  const sharp = performance.now() - start;
  await context.close();
  return { p50: quantile(frames, 0.5), p95: quantile(frames, 0.95), worst: Math.max(...frames), sharp };
}

/** MiB of the page's objects, of the documents behind them and of array buffers, after a collection. */
async function heap(cdp) {
  await cdp.send("HeapProfiler.collectGarbage");
  const { usedSize, embedderHeapUsedSize, backingStorageSize } = await cdp.send("Runtime.getHeapUsage");
  return (usedSize + embedderHeapUsedSize + backingStorageSize) / 2 ** 20;
}

async function growing(browser, server) {
  const { page, context, wrong } = await open(browser, server, server.fragment);
  await mapReady(page);
  const cdp = await context.newCDPSession(page);
  const before = await heap(cdp);
  let requests = 0;
  page.on("request", () => (requests += 1));
  await server.next(SNAPSHOTS);
  await mapReady(page);
  const after = await heap(cdp);
  await context.close();
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  return { before, after, requests };
}

function size() {
  const dist = fileURLToPath(new URL("../dist", import.meta.url));
  return readdirSync(dist).reduce((sum, name) => sum + gzipSync(readFileSync(join(dist, name)), { level: 9 }).length, 0) / 1024;
}

const [url, span] = process.argv.slice(2);
if (url !== undefined && !(Number(span) > 0)) throw new Error("usage: node test/measure.mjs [URL SPAN_MS]");
const server = await (url === undefined ? new Modelled() : new Running(url, Number(span))).start();
const browser = await launch();
try {
  const [load, zoom, memory] = [await firstPaint(browser, server), await zooming(browser, server), await growing(browser, server)];
  const figures = {
    first_paint_ms: load.paint,
    map_complete_ms: load.map,
    zoom_p50_ms: zoom.p50,
    zoom_p95_ms: zoom.p95,
    zoom_max_ms: zoom.worst,
    sharp_after_zoom_ms: zoom.sharp,
    heap_before_mib: memory.before,
    heap_after_600_snapshots_mib: memory.after,
    requests_for_600_snapshots: memory.requests,
    dist_gzip_kib: size(),
  };
  const text = Object.entries(figures).map(([name, value]) => `${name}=${Number.isInteger(value) ? value : value.toFixed(1)}`);
  console.log(`RESULT ${text.join(" ")} (${browser.version()}, ${LOADS} loads, ${WHEEL_STEPS} wheel steps)`);
} finally {
  await browser.close();
  await server.stop();
}
