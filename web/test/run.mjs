// Runs all tests. Without a browser only the others run, and that is a failure unless WEB_TESTS=optional is set.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { hasBrowser } from "./browser.mjs";

const tests = ["unit.test.mjs", "dist.test.mjs"];
if (hasBrowser()) tests.push("page.test.mjs", "map.test.mjs", "live.test.mjs");
const paths = tests.map((name) => fileURLToPath(new URL(name, import.meta.url)));
// One file after the other: they share two CPUs with a browser.
const { status } = spawnSync(process.execPath, ["--test", "--test-concurrency=1", ...paths], { stdio: "inherit" });
if (!hasBrowser()) console.log("skipped: needs chromium (apt-get install chromium, or set CHROMIUM to its path)");
process.exit(status !== 0 || (!hasBrowser() && process.env.WEB_TESTS !== "optional") ? 1 : 0);
