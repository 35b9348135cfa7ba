// An edit in the talk: the new text while it is written, then its diff and what became of it. The same text grows in the file
// itself, beside the talk (`files/review`).

import { ask, change, state } from "../app.js";
import { openFile } from "../files/buffers.js";
import { html } from "../html.js";
import { relative, shown } from "../shell/text.js";
import { Rows, counted, rowsOf } from "./diff.js";

const TAIL_LINES = 10;
const OUTCOMES = { rejected: "rejected", nothing_to_change: "nothing to change", shown_only: "shown only", applied: "written", unfinished: "not written" };

export function Edit({ part }) {
  const isUndone = state.talk.undone.has(part.entry);
  const { undo, redo } = journalEnds(state.talk);
  const rows = part.diff ? rowsOf(part.diff) : null;
  const isAsked = [...state.talk.questions.values()].some(({ files }) => files?.some(({ path }) => path === part.path));
  const outcome = isUndone ? "undone" : OUTCOMES[part.outcome] ?? (part.isAbandoned ? "abandoned" : rows ? (isAsked ? "asked below" : "") : "writing");
  return html`<section class=${`edit ${part.isAbandoned ? "abandoned" : ""}`} aria-label="Edit">
    <header>
      <${FileName} path=${part.path} />
      ${part.unit && html`<code class="unit">${shown(part.unit)}</code>`}
      ${rows && counted(rows)}
      <span class=${`outcome ${isUndone ? "undone" : part.outcome ?? ""}`}>${outcome}</span>
      ${part.entry !== undefined && part.entry === undo && html`<button class="quiet" onClick=${() => ask("conversation.undo")}>undo</button>`}
      ${part.entry !== undefined && part.entry === redo && html`<button class="quiet" onClick=${() => ask("conversation.redo")}>redo</button>`}
    </header>
    ${rows ? !isAsked && html`<${Rows} rows=${rows} />` : part.text && html`<pre class="tail">${shown(tail(part.text))}</pre>`}
    ${(part.problems ?? []).map((problem) => html`<p class="line warning">${shown(problem)}</p>`)}
  </section>`;
}

/** Return the entry that an undo takes back, and the one that a redo brings back: the journal goes step by step. */
function journalEnds({ turns, undone }) {
  const entries = turns.flatMap(({ parts }) => parts.map(({ entry }) => entry)).filter((entry) => entry !== undefined);
  const undo = Math.max(...entries.filter((entry) => !undone.has(entry)));
  return { undo, redo: Math.min(...entries.filter((entry) => undone.has(entry) && entry > undo)) };
}

export function FileName({ path }) {
  const name = relative(path, state.welcome?.folder ?? "");
  const open = () => {
    openFile(path);
    change({ pane: "file" });
  };
  return html`<button class="file-name" onClick=${open} title=${shown(path)}><bdi>${shown(name)}</bdi></button>`;
}

function tail(text) {
  let from = text.length;
  for (let lines = 0; lines <= TAIL_LINES && from > 0; lines += 1) from = text.lastIndexOf("\n", from - 1);
  return text.slice(Math.max(0, from + 1), Math.max(0, from + 1) + 4000);
}
