// The pure modules, with figures worked by hand. They are bundled into a temporary folder, because Node runs no TypeScript.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = mkdtempSync(join(tmpdir(), "isotherm-unit-"));
after(() => rmSync(folder, { recursive: true, force: true }));

async function load(name) {
  const outfile = join(folder, `${name.replaceAll("/", "-")}.mjs`);
  const entry = fileURLToPath(new URL(`../src/${name}.ts`, import.meta.url));
  await build({ entryPoints: [entry], outfile, bundle: true, format: "esm", platform: "neutral", logLevel: "error" });
  return import(outfile);
}

const format = await load("format");
const palette = await load("palette");
const scale = await load("scale");
const router = await load("router");
const { AddressAxis } = await load("heat/axis");
const viewport = await load("heat/viewport");
const grid = await load("heat/grid");
const table = await load("ui/table");
const histogram = await load("charts/histogram");
const summary = await load("heat/summary");

const MIB = 2 ** 20;

test("bytes print as the command line prints them", () => {
  const cases = { 0: "0 B", 1023: "1023 B", 4096: "4.0 KiB", 1572864: "1.5 MiB", 1073689395: "1.0 GiB" };
  for (const [count, text] of Object.entries(cases)) assert.equal(format.bytes(Number(count)), text);
});

test("durations, percent and rates print as the command line prints them", () => {
  const durations = [[0, "0 s"], [0.35, "350 us"], [12, "12 ms"], [3400, "3.4 s"], [59_700, "1 min"], [150_000, "2.5 min"], [18e6, "5 h"], [38 * 864e5, "38 d"]];
  for (const [ms, text] of durations) assert.equal(format.duration(ms), text);
  const percents = [[0, "0"], [0.004, "<0.01"], [0.05, "0.05"], [3.44, "3.4"], [12.4, "12"], [NaN, "0"]];
  for (const [value, text] of percents) assert.equal(format.percent(value), text);
  const rates = [[0, "0"], [123.4, "123"], [12.34, "12.3"], [0.123, "0.12"], [0.0042, "0.004"], [1e-6, "<0.001"]];
  for (const [hz, text] of rates) assert.equal(format.rate(hz), text);
  assert.deepEqual([0, 0.001, 0.046, 1, 0.0004].map(format.share), ["0%", "0.1%", "4.6%", "100%", "0.04%"]);
});

test("names cannot reorder text or hide", () => {
  assert.equal(format.printable("a\u202eb\u0000c\u200dd"), "a\ufffdb\ufffdc\ufffdd");
  assert.equal(format.mappingName(""), "(anon)");
});

/** Relative luminance after the linear model of Machado, Oliveira and Fernandes (2009), severity 1. */
const VISION = {
  full: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

function luminance(color, matrix) {
  const linear = color.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const seen = matrix.map((row) => Math.min(1, Math.max(0, row.reduce((sum, weight, i) => sum + weight * linear[i], 0))));
  return 0.2126 * seen[0] + 0.7152 * seen[1] + 0.0722 * seen[2];
}

test("lightness rises with heat, for colour-blind readers too", () => {
  for (const [name, matrix] of Object.entries(VISION)) {
    const seen = Array.from({ length: 51 }, (_, i) => luminance(palette.heatColor(i / 50), matrix));
    for (let i = 1; i < seen.length; i += 1) assert.ok(seen[i] > seen[i - 1], `${name} at ${i / 50}: ${seen[i - 1]} then ${seen[i]}`);
  }
});

test("absent and unmeasured cells are on no scale", () => {
  for (const show of ["hot", "peak", "interval", "idle"]) {
    assert.equal(palette.valueColor(show, 0), null);
    assert.deepEqual(palette.valueColor(show, 1), [96, 104, 112]);
    for (let value = 2; value < 256; value += 1) assert.notDeepEqual(palette.valueColor(show, value), [96, 104, 112]);
    assert.deepEqual(palette.valueColor(show, 254), [252, 250, 176]);
    assert.deepEqual(palette.valueColor(show, 255), [174, 177, 144], "estimated: half of the way to grey");
    assert.deepEqual(palette.valueColor(show, 2), [44, 20, 84]);
  }
});

test("a little hot memory does not look like none", () => {
  // 0.1% is a fifth of the way up: between the second control point and the third.
  assert.deepEqual(palette.rampColor("hot", 1e-9), [104, 25, 109]);
  // An idle time of a second ends at 60%: 0.6 of the way between the fourth control point and the fifth.
  assert.deepEqual(palette.rampColor("idle", 0.9999), [224, 91, 51]);
});

test("values of tiles are the shares that they stand for", () => {
  // 10% is two thirds up: 2 + 252 * 2 / 3. An odd value is an estimate of as much.
  for (const value of [170, 171]) assert.ok(Math.abs(scale.shareOf(value) - 0.1) < 1e-9);
  assert.deepEqual([0, 1, 2, 3, 254, 255].map(scale.shareOf), [0, 0, 0, 0, 1, 1]);
  assert.deepEqual(scale.ticks("hot").map((tick) => tick.label), ["0.1%", "1%", "10%", "100%"]);
  assert.deepEqual(scale.ticks("idle").map((tick) => tick.label), ["1 h", "10 min", "1 min", "10 s", "1 s"]);
  assert.deepEqual([scale.ticks("interval").at(0).at, scale.ticks("interval").at(-1).at], [0, 1]);
});

const axis = new AddressAxis([{ start: "1000", end: "5000" }, { start: "ffffffff00000000", end: "ffffffff00002000" }]);

test("packed positions and addresses are each other's inverse", () => {
  assert.equal(axis.total, 0x6000);
  for (const [packed, address] of [[0, 0x1000n], [0x3fff, 0x4fffn], [0x4000, 0xffffffff00000000n], [0x5fff, 0xffffffff00001fffn]]) {
    assert.equal(axis.toAddress(packed), address);
    assert.equal(axis.toPacked(address), packed);
  }
  assert.equal(axis.toPacked(0n), 0, "below all spans");
  assert.equal(axis.toPacked(0x800000n), 0x4000, "in the gap: the next span");
  assert.equal(axis.toPacked(2n ** 64n - 1n), axis.total, "above all spans");
  assert.equal(new AddressAxis([]).toAddress(0), 0n);
});

test("neighbouring mappings of one name are one run", () => {
  const mapping = (start, end, name) => ({ start, end, name, perms: "r--p" });
  const runs = axis.runs([mapping("1000", "2000", "a"), mapping("2000", "3000", "a"), mapping("3000", "5000", "b"), mapping("9000", "a000", "gap")]);
  assert.deepEqual(runs, [{ name: "a", lo: 0, hi: 0x2000 }, { name: "b", lo: 0x2000, hi: 0x4000 }]);
});

const BOUNDS = { firstMs: 1_000_000, lastMs: 4_600_000, total: 1024 * MIB, windowMs: 1000, live: true };

test("a live map begins with the last ten minutes, a recording with all", () => {
  assert.deepEqual(viewport.whole(BOUNDS), { fromMs: 4_000_000, toMs: 4_600_000, lo: 0, hi: 1024 * MIB, follow: true });
  assert.equal(viewport.whole({ ...BOUNDS, live: false }).fromMs, 1_000_000);
});

test("zooming keeps the point under the pointer", () => {
  const view = { ...viewport.whole(BOUNDS), follow: false };
  const near = viewport.zoom(view, BOUNDS, [0.25, 0.75], [0.5, 0.5]);
  // A quarter of 600 s is at 4,150 s; half as much time around it begins at 4,075 s.
  assert.deepEqual([near.fromMs, near.toMs], [4_075_000, 4_375_000]);
  assert.deepEqual([near.lo, near.hi], [384 * MIB, 896 * MIB]);
});

test("zooming while following keeps the newest snapshot at the right edge", () => {
  const near = viewport.zoom(viewport.whole(BOUNDS), BOUNDS, [0, 0], [0.5, 1]);
  assert.deepEqual([near.fromMs, near.toMs, near.follow], [4_300_000, 4_600_000, true]);
});

test("no gesture leaves what there is", () => {
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  console.log(`seed ${seed}`);
  let state = seed;
  const random = () => (state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff) / 0x7fffffff;
  let view = viewport.whole(BOUNDS);
  for (let i = 0; i < 5000; i += 1) {
    view = random() < 0.5
      ? viewport.zoom(view, BOUNDS, [random(), random()], [2 ** (4 * random() - 2), 2 ** (4 * random() - 2)])
      : viewport.pan(view, BOUNDS, [4 * random() - 2, 4 * random() - 2]);
    const inside = view.fromMs >= BOUNDS.firstMs - 1e-3 && view.toMs <= BOUNDS.lastMs + 1e-3 && view.lo >= -1e-3 && view.hi <= BOUNDS.total + 1e-3;
    assert.ok(inside && view.toMs - view.fromMs >= 7999 && view.hi - view.lo >= 65_535, JSON.stringify(view));
  }
});

test("moving back ends following, and reaching the newest snapshot begins it", () => {
  const back = viewport.pan(viewport.whole(BOUNDS), BOUNDS, [-0.5, 0]);
  assert.deepEqual([back.follow, back.toMs], [false, 4_300_000]);
  assert.equal(viewport.pan(back, BOUNDS, [0, 0.5]).follow, false);
  assert.deepEqual([viewport.pan(back, BOUNDS, [0.6, 0]).follow, viewport.pan(back, BOUNDS, [0.6, 0]).toMs], [true, 4_600_000]);
  assert.equal(viewport.pan(back, { ...BOUNDS, live: false }, [0.6, 0]).follow, false);
});

test("cells of tiles are at least a pixel, and tiles cover the viewport", () => {
  const view = { fromMs: 1_000_000, toMs: 1_600_000, lo: 0, hi: 1000 * MIB, follow: false };
  const zoom = grid.zoomFor(view, 500, 400);
  // 600,000 ms / 500 = 1200 -> 2048; 2.5 MiB -> 4 MiB.
  assert.deepEqual(zoom, { columnMs: 2048, rowBytes: 4 * MIB });
  const tiles = grid.tilesFor(view, "hot", zoom);
  const [width, height] = [2048 * 256, 1024 * MIB];
  assert.equal(Math.max(...tiles.map((tile) => tile.fromMs)) + width >= view.toMs, true);
  assert.equal(Math.min(...tiles.map((tile) => tile.fromMs)) <= view.fromMs, true);
  assert.ok(tiles.every((tile) => tile.fromMs % width === 0 && tile.lo % height === 0));
  assert.equal(tiles.length, 3);
  assert.equal(grid.tileRows(tiles[0], 1000 * MIB), 250);
  assert.deepEqual(grid.zoomFor({ ...view, toMs: view.fromMs + 512_000 }, 500, 400).columnMs, 1024);
});

test("routes survive a round trip, and nonsense is ignored", () => {
  const routes = [
    { view: "overview", tab: "cgroups", sort: "-resident", filter: "a b&c=#?/" },
    { view: "process", id: "812-4711", show: "idle", span: 60_000, range: null, addresses: null },
    { view: "process", id: "1-2", show: "", span: null, range: [1000, 2000], addresses: ["0000000000001000", "00007f0000000000"] },
  ];
  for (const route of routes) assert.deepEqual(router.parse(router.format(route)), route);
  assert.equal(router.parse("#/nowhere").view, "overview");
  const odd = router.parse("#/process/%zz?from=5&to=1&lo=xyz&hi=1&span=-3");
  assert.deepEqual([odd.id, odd.span, odd.range, odd.addresses], ["%zz", null, null, null]);
});

test("tables sort by number and by name, and filter by every word", () => {
  const columns = [{ id: "n", value: (row) => row.n }, { id: "name", value: (row) => row.name }];
  const rows = [{ n: 9, name: "b10" }, { n: 10, name: "b9" }, { n: 1, name: "a" }];
  const order = (sort) => table.sorted(rows, columns, sort).map((row) => row.n);
  assert.deepEqual([order("n"), order("-n"), order("name"), order("nothing")], [[1, 9, 10], [10, 9, 1], [1, 10, 9], [9, 10, 1]]);
  assert.deepEqual(table.filtered(rows, (row) => row.name, " B 1").map((row) => row.n), [9]);
});

test("a histogram has every octave between the first and the last in use, and what is unmeasured", () => {
  const bar = (ms, bytes) => ({ ms, bytes });
  const bars = [bar(1, 0), bar(4, 7), bar(31.9, 3), bar(64, 0), bar(null, 5)];
  assert.deepEqual(histogram.octaves(bars), [bar(4, 7), bar(8, 0), bar(16, 0), bar(31.9, 3), bar(null, 5)]);
  assert.deepEqual(histogram.octaves([bar(1, 0), bar(null, 0)]), []);
  assert.deepEqual(histogram.octaves([bar(null, 4096)]), [bar(null, 4096)]);
});

test("the hottest mapping is found from whole cells only", () => {
  // Four cells of 10: unmeasured, all hot, none hot, absent.
  const values = Uint8Array.of(1, 255, 2, 0);
  assert.equal(summary.meanShare(values, { lo: 10, hi: 30 }, 40), 0.5);
  assert.equal(summary.meanShare(values, { lo: 0, hi: 10 }, 40), null);
  assert.equal(summary.meanShare(values, { lo: 12, hi: 19 }, 40), null);
});
