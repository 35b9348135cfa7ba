// A unified diff as rows. Owns the reading of the text and the colours; long ones are cut, with a button that shows the rest.

import { useState } from "preact/hooks";
import { html } from "../html.js";
import { shown } from "../shell/text.js";

const MOST_ROWS = 300;
const LONGEST_ROW = 2_000;
const KINDS = { "+": "add", "-": "delete", "@": "hunk" };

/** Return rows of a unified diff: [tag, text]. The lines with file names are left out. */
export function rowsOf(diff) {
  const rows = [];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    if (/^(--- |\+\+\+ |diff |index )/.test(line)) continue;
    rows.push(line.startsWith("@@") ? ["@", line] : [line[0] ?? " ", line.slice(1)]);
  }
  return rows;
}

export function Rows({ rows }) {
  const [isWhole, setWhole] = useState(false);
  const drawn = isWhole ? rows : rows.slice(0, MOST_ROWS);
  return html`<div class="diff" role="group" aria-label="Changes">
    <div class="rows">${drawn.map(([tag, text]) => html`<div class=${`row ${KINDS[tag] ?? ""}`}><span class="tag" aria-hidden="true">${KINDS[tag] && tag !== "@" ? tag : " "}</span>${shown(text.slice(0, LONGEST_ROW)) || " "}</div>`)}</div>
    ${rows.length > drawn.length && html`<button class="quiet" onClick=${() => setWhole(true)}>${rows.length - drawn.length} more lines</button>`}
  </div>`;
}

export function counted(rows) {
  const added = rows.filter(([tag]) => tag === "+").length;
  const deleted = rows.filter(([tag]) => tag === "-").length;
  return html`<span class="counted"><span class="add">+${added}</span> <span class="delete">−${deleted}</span></span>`;
}
