// A server with the API of `isotherm-serve`, about the process of model.mjs. For the tests, and to work on the page:
//
// usage: node test/server.mjs [SECONDS]      prints the address, adds a snapshot a second, and ends after SECONDS (600)
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { Model, WINDOW_MS } from "./model.mjs";

const DIST = fileURLToPath(new URL("../dist", import.meta.url));
const TOKEN = "0123456789abcdef0123456789abcdef";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const HEADERS = {
  "Cache-Control": "no-store",
  "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
};
const MAX_CELLS = 2048;

export class TestServer {
  constructor(model = new Model()) {
    this.model = model;
    this.listeners = new Set();
    /** Paths of requests, without the token. */
    this.requests = [];
    /** Tiles that were requested: their last time, and their columns. */
    this.tiles = [];
    /** Answers with this status instead: { prefix, status }. */
    this.failure = null;
    /** Answers so much later: { prefix, ms }. */
    this.slow = null;
    this.port = 0;
  }

  get url() {
    return `http://127.0.0.1:${this.port}/${TOKEN}/`;
  }

  /** Listens on a free port at first, and on the same one after `stop`. */
  async start() {
    this.server = createServer((request, response) => this.answer(request, response));
    await new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(this.port, "127.0.0.1", resolve);
    });
    this.port = this.server.address().port;
    return this;
  }

  async stop() {
    for (const listener of this.listeners) listener.end();
    this.listeners.clear();
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  /** Adds snapshots, and announces the last one. */
  tick(count = 1, ids = null) {
    this.model.snapshots += count;
    const data = { at_ms: this.model.newestMs, ids: ids ?? this.model.processRows().map((row) => row.id) };
    for (const listener of this.listeners) listener.write(`event: snapshot\ndata: ${JSON.stringify(data)}\n\n`);
  }

  answer(request, response) {
    const url = new URL(request.url, this.url);
    const base = `/${TOKEN}/`;
    const path = url.pathname.slice(base.length);
    this.requests.push(path);
    if (!url.pathname.startsWith(base)) return this.refuse(response, 404, "read a page: there is none at this address");
    if (this.failure && path.startsWith(this.failure.prefix)) {
      return this.refuse(response, this.failure.status, "read a figure, for a test: it was made to fail");
    }
    const [, kind, id] = /^api\/(\w+)(?:\/(.+))?$/.exec(path) ?? [];
    if (kind === undefined) return this.file(path || "index.html", response);
    if (id !== undefined && decodeURIComponent(id) !== this.model.id) return this.refuse(response, 404, `read ${id}: no such process`);
    if (!this.slow || !path.startsWith(this.slow.prefix)) return this.api(kind, url.searchParams, response);
    setTimeout(() => this.api(kind, url.searchParams, response), this.slow.ms);
  }

  api(kind, query, response) {
    switch (kind) {
      case "overview":
        return this.json(response, 200, this.model.overview());
      case "plan":
        return this.json(response, 200, this.model.plan());
      case "process":
        return this.json(response, 200, this.model.detail());
      case "picture":
        response.writeHead(200, { ...HEADERS, "Content-Type": TYPES.html, "Content-Disposition": 'attachment; filename="isotherm-812.html"' });
        return response.end(`<!doctype html><title>${query}</title>`);
      case "cell":
        return this.json(response, 200, this.model.cell(Number(query.get("at")), BigInt(`0x${query.get("addr")}`)));
      case "tile":
        return this.tile(query, response);
      case "live":
        return this.listen(response);
      default:
        return this.refuse(response, 404, `read ${kind}: no such figure`);
    }
  }

  tile(query, response) {
    const [from, to, lo, hi, w, h] = ["from", "to", "lo", "hi", "w", "h"].map((name) => Number(query.get(name)));
    if (query.get("layout") !== this.model.layout) return this.json(response, 409, { layout: this.model.layout });
    const whole = [from, to, lo, hi, w, h].every(Number.isInteger);
    if (!whole || to <= from || hi <= lo || w < 1 || h < 1 || w > MAX_CELLS || h > MAX_CELLS) {
      return this.refuse(response, 400, "read a tile: its sizes are wrong");
    }
    this.tiles.push({ to, columns: w });
    const values = this.model.tile({ show: query.get("show"), from, to, lo, hi, w, h });
    // The newest moment in it: its window meets the tile, and may end after it.
    const newest = Math.min(this.model.newestMs, to + WINDOW_MS - 1);
    response.writeHead(200, { ...HEADERS, "Content-Type": "application/octet-stream", "X-Tile-Newest-Ms": String(newest) });
    response.end(values);
  }

  listen(response) {
    response.writeHead(200, { ...HEADERS, "Content-Type": "text/event-stream" });
    response.write(": open\n\n");
    this.listeners.add(response);
    response.on("close", () => this.listeners.delete(response));
  }

  file(name, response) {
    const type = /^[\w.-]+$/.test(name) ? TYPES[name.split(".").at(-1)] : undefined;
    try {
      if (type === undefined) throw new Error("not a file of the page");
      const text = readFileSync(join(DIST, name));
      response.writeHead(200, { ...HEADERS, "Content-Type": type });
      response.end(text);
    } catch {
      this.refuse(response, 404, `read ${name}: no such file`);
    }
  }

  json(response, status, data) {
    response.writeHead(status, { ...HEADERS, "Content-Type": "application/json" });
    response.end(JSON.stringify(data));
  }

  refuse(response, status, error) {
    this.json(response, status, { error });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const seconds = Number(process.argv[2] ?? 600);
  const server = await new TestServer().start();
  console.log(`listening on ${server.url}`);
  const timer = setInterval(() => server.tick(), 1000);
  setTimeout(() => {
    clearInterval(timer);
    void server.stop();
  }, seconds * 1000);
}
