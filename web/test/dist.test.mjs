// dist/ is what the sources build: the server embeds these files, and nobody builds them anew for that.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { buildPage } from "../build.mjs";

const DIST = fileURLToPath(new URL("../dist", import.meta.url));

test("dist is current", async () => {
  const fresh = mkdtempSync(join(tmpdir(), "isotherm-web-"));
  try {
    await buildPage(fresh);
    assert.deepEqual(readdirSync(DIST).sort(), readdirSync(fresh).sort());
    for (const name of readdirSync(fresh)) {
      const same = readFileSync(join(DIST, name)).equals(readFileSync(join(fresh, name)));
      assert.ok(same, `dist/${name} is not what the sources build: run \`make web\` and commit web/dist`);
    }
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
});

test("the page has no inline script or style, and names no other host", () => {
  const html = readFileSync(join(DIST, "index.html"), "utf8");
  assert.doesNotMatch(html, /<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|https?:/);
  const styles = readFileSync(join(DIST, "app.css"), "utf8");
  assert.doesNotMatch(styles, /url\(|@import/);
});
