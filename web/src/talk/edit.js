// An edit in the talk: the new text while it is written, then its diff and what became of it. The same text grows in the file
// itself, beside the talk (`files/review`).

import { ask, change, state } from "../app.js";
import { openFile } from "../files/buffers.js";
import { html } from "../html.js";
import { fileName, relative, shown } from "../shell/text.js";
import { Rows, counted, rowsOf } from "./diff.js";

const TAIL_LINES = 10;
const OUTCOMES = { rejected: "rejected", nothing_to_change: "nothing to change", shown_only: "shown only", applied: "written", unfinished: "not written" };

export function Edit({ part }) {
  const isUndone = state.talk.undone.has(part.entry);
  const rows = part.diff ? rowsOf(part.diff) : null;
  const isAsked = !part.outcome && [...state.talk.questions.values()].some(({ files }) => files?.some(({ path }) => path === part.path));
  const outcome = isUndone ? "undone" : OUTCOMES[part.outcome] ?? (part.isAbandoned ? "abandoned" : rows ? (isAsked ? "asked below" : "") : "writing");
  return html`<section class=${`edit ${part.isAbandoned ? "abandoned" : ""}`} aria-label="Edit">
    <header>
      <${FileName} path=${part.path} />
      ${part.unit && html`<code class="unit">${shown(part.unit)}</code>`}
      ${rows && counted(rows)}
      <span class=${`outcome ${isUndone ? "undone" : part.outcome ?? ""}`}>${outcome}</span>
      ${part.entry > 0 && html`<${Undo} part=${part} isUndone=${isUndone} />`}
    </header>
    ${rows ? !isAsked && html`<${Rows} rows=${rows} />` : part.text && html`<pre class="tail">${shown(tail(part.text))}</pre>`}
    ${(part.problems ?? []).map((problem) => html`<p class="line warning">${shown(problem)}</p>`)}
  </section>`;
}

/** Take back this edit, or bring it back: whichever it is. Files that were written together go together. */
function Undo({ part, isUndone }) {
  const [verb, operation] = isUndone ? ["redo", "conversation.redo"] : ["undo", "conversation.undo"];
  const label = `${isUndone ? "Redo" : "Undo"} the edit of ${fileName(part.path)}`;
  return html`<button class="quiet" onClick=${() => ask(operation, { entry: part.entry })} aria-label=${label}>${verb}</button>`;
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
