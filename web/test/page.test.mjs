// What a reader can do on the overview and between the views, at both sizes and in both themes.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, afterEach, before, test } from "node:test";
import { launch, mapReady, NARROW, open, screenshot, WIDE } from "./browser.mjs";
import { Model } from "./model.mjs";
import { TestServer } from "./server.mjs";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const PROCESS = "#/process/812-4711";

let browser;
let server;
before(async () => {
  browser = await launch();
});
after(() => browser.close());
afterEach(() => server.stop());

async function visit(fragment, options, model = new Model()) {
  server = await new TestServer(model).start();
  const opened = await open(browser, server, fragment, options);
  await (fragment.startsWith(PROCESS) ? mapReady(opened.page) : opened.page.waitForSelector("tbody tr"));
  return opened;
}

const names = (page) => page.$$eval(".tables table:visible tbody th a, .tables tbody th a", (links) => links.filter((a) => a.offsetParent).map((a) => a.textContent));
const cells = (page, index) => page.$$eval(".tables tbody tr", (rows, i) => rows.filter((row) => row.offsetParent).map((row) => row.cells[i].textContent), index);

/** MiB of `1.5 GiB`. */
function mib(text) {
  const [value, unit] = text.split(" ");
  return Number(value) * { B: 2 ** -20, KiB: 2 ** -10, MiB: 1, GiB: 1024 }[unit];
}

test("the overview shows the host, what watching costs, and all processes", async () => {
  const { page, wrong } = await visit("");
  const host = await page.textContent(".host");
  for (const text of ["example-host", "6.12.48", "page-table", "Monitor CPU0.82%", "Slow-down0.34%", "Snapshots lost0", "256.0 GiB"]) {
    assert.ok(host.includes(text), `${text} is not in: ${host}`);
  }
  assert.equal((await names(page)).length, 40);
  assert.equal((await page.$$(".spark polyline")).length, 40);
  const bar = await page.getAttribute("tbody tr .bar", "aria-label");
  assert.match(bar, /^hot 96\.0 MiB, warm .*, unmeasured /);
  assert.match(await page.textContent('[aria-label="Actions"]'), /not enough free memory/);
  assert.match(await page.textContent('.panel[aria-label="Events"]'), /256\.0 MiB appeared/);
  assert.deepEqual(wrong, []);
});

test("tables sort by each column, by mouse and by key", async () => {
  const { page, wrong } = await visit("");
  const resident = (await cells(page, 2)).map(mib);
  assert.ok(resident.every((value, i) => i === 0 || value <= resident[i - 1]), "at first the largest is on top");
  await page.click("th >> text=Resident");
  const up = (await cells(page, 2)).map(mib);
  assert.ok(up.every((value, i) => i === 0 || value >= up[i - 1]));
  assert.equal(await page.getAttribute("th:has-text('Resident')", "aria-sort"), "ascending");
  await page.focus("th button:has-text('Process')");
  await page.keyboard.press("Enter");
  const sorted = await names(page);
  assert.deepEqual(sorted, [...sorted].sort((a, b) => a.localeCompare(b, "en")));
  assert.match(page.url(), /sort=name/);
  assert.deepEqual(wrong, []);
});

test("the filter keeps rows with every word, and is part of the address", async () => {
  const { page, wrong } = await visit("");
  await page.fill("input[type=search]", "kubepods node");
  const found = await names(page);
  assert.ok(found.length > 0 && found.every((name) => name === "node"), String(found));
  assert.match(await page.textContent(".table-foot"), new RegExp(`^${found.length} processe?s? of 40`));
  assert.match(page.url(), /filter=kubepods\+node/);
  await page.fill("input[type=search]", "nothing has this name");
  assert.match(await page.textContent(".table-foot"), /^0 processes of 40/);
  assert.deepEqual(wrong, []);
});

test("the plan shows what would be done, the largest first, and why not", async () => {
  const { page, wrong } = await visit("");
  assert.ok(!server.requests.includes("api/plan"), "it is not read before it is wanted");
  await page.click(".tab >> text=Plan");
  await page.waitForSelector("tbody tr:has-text('collapse')");
  // It is drawn after the rows.
  await page.waitForSelector(".plan-note:has-text('Nothing is done here')");
  assert.match(page.url(), /tab=plan/);
  assert.match(await page.textContent(".plan-note"), /isotherm reclaim .* Nothing is done here/);
  assert.deepEqual((await cells(page, 1)).slice(0, 2), ["collapse", "page-out"]);
  assert.deepEqual((await cells(page, 2)).slice(0, 3), ["96.0 MiB", "3.0 MiB", ""]);
  const where = await cells(page, 4);
  assert.deepEqual(where.slice(0, 2), ["[heap] at 555500000000", "other mappings"]);
  assert.ok(where.includes("stays: the process runs a KVM guest"));
  await page.fill("input[type=search]", "seldom");
  assert.equal((await cells(page, 1)).length, 1);
  await page.fill("input[type=search]", "");
  await page.click(".tab >> text=processes");
  assert.equal((await names(page)).length, 40);
  assert.deepEqual(wrong, []);
});

test("a recording has no plan, and the page says what makes one", async () => {
  const model = new Model();
  model.mode = "recording";
  server = await new TestServer(model).start();
  const { page, wrong } = await open(browser, server, "#/?tab=plan");
  await page.waitForSelector(".plan-note:has-text('collapse --dry-run')");
  assert.deepEqual(wrong, []);
});

test("a table of 3,000 processes draws a hundred rows until all are asked for", async () => {
  const { page, wrong } = await visit("", {}, new Model({ processes: 3000 }));
  assert.equal((await names(page)).length, 100);
  await page.click("button:has-text('Show all')");
  assert.equal((await names(page)).length, 3000);
  assert.deepEqual(wrong, []);
});

test("a row keeps the focus when a snapshot changes the table", async () => {
  const { page, wrong } = await visit("");
  await page.focus("tbody a:has-text('sshd')");
  const asked = server.requests.filter((path) => path === "api/overview").length;
  server.tick(3);
  await page.waitForFunction(() => /14:23:22/.test(document.querySelector(".host").textContent));
  assert.ok(server.requests.filter((path) => path === "api/overview").length > asked);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "sshd");
  assert.deepEqual(wrong, []);
});

test("links and back lead between processes, cgroups and the map", async () => {
  const { page, wrong } = await visit("#/?filter=redis");
  assert.deepEqual(await names(page), ["redis-server"]);
  await page.click("tbody a");
  await mapReady(page);
  assert.equal(await page.textContent("h1"), "redis-server 812");
  await page.click("button:has-text('Idle time')");
  assert.match(page.url(), /show=idle/);
  await page.goBack();
  await page.waitForSelector("button[aria-pressed=true]:has-text('Hot share')");
  await page.goBack();
  await page.waitForSelector("tbody tr");
  assert.deepEqual([await names(page), await page.inputValue("input[type=search]")], [["redis-server"], "redis"]);
  await page.goForward();
  await mapReady(page);
  await page.click("text=All processes");
  await page.click("a:has-text('4 cgroups')");
  await page.click("tbody a:has-text('postgresql.service')");
  await page.waitForSelector("tbody a:has-text('postgres')");
  assert.ok((await cells(page, 1)).every((cgroup) => cgroup === "postgresql.service /system.slice"));
  assert.deepEqual(wrong, []);
});

test("the theme follows the system, and the field overrides it for good", async () => {
  const { page, wrong } = await visit("", { colorScheme: "light" });
  // A change reaches the page with its next frame.
  const background = (color) => page.waitForFunction((wanted) => getComputedStyle(document.body).backgroundColor === wanted, color, { timeout: 5000 });
  await background("rgb(243, 244, 246)");
  await page.emulateMedia({ colorScheme: "dark" });
  await background("rgb(15, 17, 21)");
  await page.selectOption(".theme select", "light");
  await background("rgb(243, 244, 246)");
  await page.reload();
  await page.waitForSelector("tbody tr");
  await background("rgb(243, 244, 246)");
  assert.deepEqual(wrong, []);
});

for (const [size, viewport] of [["wide", { viewport: WIDE }], ["narrow", { viewport: NARROW, hasTouch: true, isMobile: true, deviceScaleFactor: 2 }]]) {
  for (const colorScheme of ["dark", "light"]) {
    test(`${size}, ${colorScheme}: nothing overflows, and axe-core finds nothing serious`, async () => {
      const { page, context, wrong } = await visit("", { ...viewport, colorScheme });
      for (const [name, fragment] of [["overview", "#/"], ["cgroups", "#/?tab=cgroups"], ["plan", "#/?tab=plan"], ["process", PROCESS]]) {
        await page.goto(`${server.url}${fragment}`);
        if (name === "process") {
          await mapReady(page);
          await page.waitForFunction(() => /Hottest/.test(document.querySelector(".summary").textContent));
          await page.click(".mappings summary");
        }
        await screenshot(page, `${name}-${size}-${colorScheme}`, { fullPage: name === "process" });
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(overflow, 0, `${name} is ${overflow} pixels too wide`);
        const cut = await page.$$eval(".tables .scroller", (all) => all.filter((one) => one.scrollWidth > one.clientWidth).length);
        assert.equal(cut, 0, `a table of ${name} has to be scrolled sideways`);
        // Policy forbids inline scripts, and axe-core is not part of the page.
        const bad = await axe(context, page.url());
        assert.deepEqual(bad, []);
      }
      assert.deepEqual(wrong, []);
    });
  }
}

/** Violations that are serious or critical, of a second page with the policy switched off. */
async function axe(context, url) {
  const second = await context.browser().newContext({
    bypassCSP: true,
    viewport: context.pages()[0].viewportSize(),
    colorScheme: await context.pages()[0].evaluate(() => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")),
  });
  const page = await second.newPage();
  await page.goto(url);
  await (url.includes("process") ? mapReady(page) : page.waitForSelector("tbody tr"));
  await page.addScriptTag({ path: AXE });
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  await second.close();
  return violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .map((v) => `${v.id}: ${v.nodes.map((node) => `${node.html} ${node.any.map((check) => check.message).join(" ")}`).join("; ")}`);
}

test("an answer that is an error is shown, and goes once it is over", async () => {
  server = await new TestServer().start();
  server.failure = { prefix: "api/overview", status: 503 };
  const { page } = await open(browser, server);
  await page.waitForSelector(".notice:not([hidden])");
  assert.match(await page.textContent(".notice"), /read the overview: read a figure, for a test: it was made to fail/);
  server.failure = null;
  server.tick();
  await page.waitForSelector(".notice", { state: "hidden" });
  await page.waitForSelector("tbody tr");
});

test("a process that is not held is named", async () => {
  server = await new TestServer().start();
  const { page } = await open(browser, server, "#/process/9-9");
  await page.waitForSelector(".notice:not([hidden])");
  assert.match(await page.textContent(".notice"), /Process 9-9 is not held by the server/);
});

test("names of processes are text, whatever they hold", async () => {
  const model = new Model();
  const rows = model.processRows.bind(model);
  model.processRows = () => rows().map((row) => ({ ...row, comm: "<img src=x onerror=alert(1)>\u202e" }));
  const { page, wrong } = await visit("", {}, model);
  assert.equal((await names(page))[0], "<img src=x onerror=alert(1)>\ufffd");
  assert.equal(await page.$("table img"), null);
  assert.deepEqual(wrong, []);
});
