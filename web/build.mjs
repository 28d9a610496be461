// Bundles src/ and static/ into a folder: index.html, icon.svg, app.js, app.css.
//
// usage: node build.mjs [FOLDER]     (default: dist)
//
// The names carry no hash: the files are committed, and a hash in a name would turn every change into a rename. The
// server answers with an ETag. The output depends on the sources and on the locked versions only, so that a test can
// build again and compare bytes.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));

/** Licences of what is bundled, at the end of the script: they ask for it. */
function notices() {
  const licence = readFileSync(join(HERE, "node_modules/uplot/LICENSE"), "utf8").trim();
  return `/* uPlot:\n${licence.replaceAll("*/", "* /")}\n*/`;
}

/** Builds the page into `folder`, which is emptied first. */
export async function buildPage(folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  await build({
    absWorkingDir: HERE,
    entryPoints: { app: "src/main.ts" },
    outdir: folder,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    charset: "utf8",
    legalComments: "none",
    footer: { js: notices() },
    logLevel: "warning",
  });
  for (const name of ["index.html", "icon.svg"]) copyFileSync(join(HERE, "static", name), join(folder, name));
  // The only file that esbuild does not end with a line feed when there is a footer.
  for (const name of ["app.js", "app.css"]) {
    const text = readFileSync(join(folder, name), "utf8");
    if (!text.endsWith("\n")) writeFileSync(join(folder, name), `${text}\n`);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildPage(process.argv[2] ?? join(HERE, "dist"));
