// Measures the page: first paint, zooming, memory of the tab while columns are added, and the size of dist.
//
// usage: node test/measure.mjs      (npm run measure; about 2 minutes)
//
// Ends with a RESULT line. The figures are those of the machine and of the browser on it, without a GPU if it has none.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { launch, mapReady, open } from "./browser.mjs";
import { Model } from "./model.mjs";
import { TestServer } from "./server.mjs";

const PROCESS = "#/process/812-4711";
const LOADS = 7;
const WHEEL_STEPS = 100;
/** Ten minutes of snapshots, one a second. */
const SNAPSHOTS = 600;
const TICK_MS = 60;

function quantile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}

/** Milliseconds from the request to the first text, and to a complete map. */
async function firstPaint(browser, server) {
  const [paints, maps] = [[], []];
  for (let i = 0; i < LOADS; i += 1) {
    const { page, context } = await open(browser, server, PROCESS);
    await mapReady(page);
    maps.push(await page.evaluate(() => performance.now()));
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    await context.close();
  }
  return { paint: quantile(paints, 0.5), map: quantile(maps, 0.5) };
}

/** Milliseconds from each turn of the wheel to the end of the frame that shows it. */
async function zooming(browser, server) {
  const { page, context } = await open(browser, server, PROCESS);
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

/** MiB of JavaScript objects, after a collection. */
async function heap(cdp) {
  await cdp.send("HeapProfiler.collectGarbage");
  const { metrics } = await cdp.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "JSHeapUsedSize").value / 2 ** 20;
}

async function growing(browser, server) {
  const { page, context, wrong } = await open(browser, server, PROCESS);
  await mapReady(page);
  const cdp = await context.newCDPSession(page);
  await cdp.send("Performance.enable");
  const before = await heap(cdp);
  const asked = server.requests.length;
  for (let i = 0; i < SNAPSHOTS; i += 1) {
    server.tick();
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
  await mapReady(page);
  const after = await heap(cdp);
  await context.close();
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  return { before, after, requests: server.requests.length - asked };
}

function size() {
  const dist = fileURLToPath(new URL("../dist", import.meta.url));
  return readdirSync(dist).reduce((sum, name) => sum + gzipSync(readFileSync(join(dist, name)), { level: 9 }).length, 0) / 1024;
}

const server = await new TestServer(new Model({ snapshots: 3600 })).start();
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
