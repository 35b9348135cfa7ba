// Builds the browser app: `npm ci && npm run build` in this folder. Writes src/vivace/web/static, which is committed and ships.
// The manifest has a hash of everything that the app is made from; tests/web/browser/test_bundle.py compares it, without Node.js.

import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const sources = join(here, "src");
const out = join(here, "../src/vivace/web/static");

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, "app"), { recursive: true });
await build({
  entryPoints: { app: join(sources, "main.js"), editor: join(sources, "files/editor.js") },
  outdir: join(out, "app"),
  bundle: true,
  splitting: true, // the editor and its languages are a file of their own, which `highlighting.js` loads
  format: "esm",
  minify: true,
  target: ["chrome120", "firefox121", "safari17"],
  chunkNames: "[name]-[hash]",
  legalComments: "none",
  charset: "utf8",
  // CodeMirror parses for up to 100 ms at a time where it can ask for pending input; without, for what is left of a frame.
  define: { "navigator.scheduling": "undefined" },
});
await build({ entryPoints: [join(sources, "app.css")], outdir: join(out, "app"), minify: true, target: ["chrome120", "firefox121", "safari17"] });
cpSync(join(sources, "index.html"), join(out, "index.html"));
cpSync(join(sources, "icon.svg"), join(out, "app/icon.svg"));
writeFileSync(join(out, "LICENSES.txt"), licenses());
writeFileSync(join(out, "manifest.json"), `${JSON.stringify({ sources: hashOfSources() }, null, 2)}\n`);

/** Return one hash of all sources, of what they import and of this script: paths and bytes, sorted by path. */
function hashOfSources() {
  const hash = createHash("sha256");
  for (const path of [...filesIn(sources), join(here, "package-lock.json"), join(here, "build.mjs")].sort()) {
    hash.update(`${relative(here, path)}\0`);
    hash.update(readFileSync(path));
    hash.update("\0");
  }
  return hash.digest("hex");
}

function filesIn(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

/** Return the names and licences of all packages that are in the bundle. */
function licenses() {
  const { packages } = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8"));
  const named = new Map(); // text of a licence → the packages that have it
  for (const [path, { version, dev, optional }] of Object.entries(packages)) {
    if (!path || dev || optional) continue;
    const file = readdirSync(join(here, path)).find((each) => /^licen[cs]e/i.test(each));
    const text = file ? readFileSync(join(here, path, file), "utf8").trim() : "MIT";
    named.set(text, [...(named.get(text) ?? []), `${path.replace(/^.*node_modules\//, "")} ${version}`]);
  }
  const rows = [...named].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`);
  return `The browser app contains these packages.\n\n${rows.join(`\n${"-".repeat(78)}\n\n`)}`;
}
