// How fast the server is and was, and the kept results of `vivace bench` and `vivace eval`. Owns which figures are drawn; the
// pictures are `plots`.

import { useEffect, useState } from "preact/hooks";
import { link, state } from "../app.js";
import { html } from "../html.js";
import { PageBar } from "../shell/page_bar.js";
import { duration, shown } from "../shell/text.js";
import { useValue } from "../store.js";
import { Bars, Line } from "./plots.js";

const EVERY_MS = 5000;

export function NumbersPage() {
  const isConnected = useValue(() => state.connection === "connected");
  const [samples, setSamples] = useState(/** @type {Record<string, number>[]} */ ([]));
  const [results, setResults] = useState(/** @type {{ name: string, at_s: number, result: unknown }[]} */ ([]));
  useEffect(() => {
    if (!isConnected) return undefined;
    const read = () => link.call("metrics.read").then((answer) => setSamples(answer.samples), () => {});
    read();
    link.call("results.list").then((answer) => setResults(answer.results), () => {});
    const timer = setInterval(() => document.hidden || read(), EVERY_MS);
    return () => clearInterval(timer);
  }, [isConnected]);
  const measured = (field) => samples.filter((sample) => sample[field] > 0).map((sample) => [sample.at_s, sample[field]]);
  return html`<section class="page" aria-label="Numbers">
    <${PageBar} />
    <header class="page-head"><h1>The last hour</h1></header>
    <div class="plots">
      <${Line} title="tokens a second" points=${measured("tokens_per_s")} format=${(value) => value.toFixed(value < 100 ? 1 : 0)} />
      <${Line} title="first token" points=${measured("first_token_ms")} format=${duration} />
      <${Line} title="prompt found in the cache" points=${measured("cached_share")} format=${(value) => `${Math.round(value * 100)}%`} most=${1} />
    </div>
    <header class="page-head"><h1>Results</h1><p class="dim">of <code>vivace bench --json</code> and <code>vivace eval --json</code></p></header>
    ${results.length ? results.map((result) => html`<${Result} key=${`${result.name} ${result.at_s}`} result=${result} />`) : html`<p class="dim">None were kept yet.</p>`}
  </section>`;
}

function Result({ result }) {
  const groups = figuresOf(result.result);
  return html`<section class="result"><h2>${shown(result.name)} <span class="dim">${new Date(result.at_s * 1000).toLocaleString()}</span></h2>
    <div class="plots">${groups.map(([title, bars]) => html`<${Bars} key=${title} title=${title} bars=${bars} />`)}</div>
    <details><summary>all of it</summary><pre class="tail whole">${shown(JSON.stringify(result.result, null, 2))}</pre></details>
  </section>`;
}

/** Return figures that can be compared, by their unit: numbers of one kind within an object or a list of named objects. */
export function figuresOf(value, path = [], found = new Map()) {
  if (path.length > 5 || value === null || typeof value !== "object") return [...found];
  for (const [key, each] of Object.entries(value)) {
    const name = Array.isArray(value) ? String(each?.name ?? each?.model ?? each?.task ?? Number(key) + 1) : key;
    if (typeof each === "number" && Number.isFinite(each)) {
      const unit = unitOf(key);
      if (!unit) continue;
      if (!found.has(unit)) found.set(unit, []);
      if (found.get(unit).length < 16) found.get(unit).push([[...path, key].join(" ").replaceAll("_", " "), each]);
    } else {
      figuresOf(each, [...path, name], found);
    }
  }
  return [...found];
}

function unitOf(key) {
  if (/(tok|tokens)(_per_s|_s|\/s)$/.test(key) || /per_s(econd)?$/.test(key)) return "a second";
  if (/_ms$/.test(key)) return "milliseconds";
  if (/_s$/.test(key) && !/at_s$/.test(key)) return "seconds";
  if (/(share|rate|ratio|score|passed|solved)$/.test(key)) return "share or count";
  return "";
}
