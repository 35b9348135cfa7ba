// A unified diff as rows. Owns the reading of the text and the colours; long ones are cut, with a button that shows the rest.

import { useState } from "preact/hooks";
import { html } from "../html.js";
import { memo } from "../shell/memo.js";
import { count, reviewed } from "../shell/text.js";

const MOST_ROWS = 300;
const LONGEST_ROW = 2_000;
const KINDS = { "+": "add", "-": "delete", "@": "hunk" };

let last = new Map(); // diff → rows: the same ones are drawn frame by frame
const MOST_KEPT = 50;

/** Return rows of a unified diff: [tag, text]. The lines with file names are left out. */
export function rowsOf(diff) {
  if (last.size > MOST_KEPT) last = new Map();
  if (!last.has(diff)) last.set(diff, read(diff));
  return last.get(diff);
}

function read(diff) {
  const rows = [];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    if (/^(--- |\+\+\+ |diff |index )/.test(line)) continue;
    rows.push(line.startsWith("@@") ? ["@", line] : [line[0] ?? " ", line.slice(1)]);
  }
  return rows;
}

export const Rows = memo(DrawnRows, (before, after) => before.rows === after.rows);

function DrawnRows({ rows }) {
  const [isWhole, setWhole] = useState(false);
  const drawn = isWhole ? rows : rows.slice(0, MOST_ROWS);
  return html`<div class="diff" role="group" aria-label="Changes" tabindex="0">
    <div class="rows">${drawn.map(([tag, text]) => html`<div class=${`row ${KINDS[tag] ?? ""}`}><span class="tag" aria-hidden="true">${KINDS[tag] && tag !== "@" ? tag : " "}</span>${reviewed(text.slice(0, LONGEST_ROW)) || " "}${text.length > LONGEST_ROW && !isWhole && html` <button class="quiet" onClick=${() => setWhole(true)}>${count(text.length - LONGEST_ROW)} more characters</button>`}${isWhole && reviewed(text.slice(LONGEST_ROW))}</div>`)}</div>
    ${rows.length > drawn.length && html`<button class="quiet" onClick=${() => setWhole(true)}>${rows.length - drawn.length} more lines</button>`}
  </div>`;
}

export function counted(rows) {
  const added = rows.filter(([tag]) => tag === "+").length;
  const deleted = rows.filter(([tag]) => tag === "-").length;
  return html`<span class="counted"><span class="add">+${added}</span> <span class="delete">−${deleted}</span></span>`;
}
