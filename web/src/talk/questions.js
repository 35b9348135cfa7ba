// What the user is asked: about an edit hunk by hunk, about a file that changed meanwhile, about a call of a tool. Owns how the
// questions look and which keys answer; answers go through `app`.

import { useState } from "preact/hooks";
import { approve, ask, decide, markHunk, marksOf, noteAsked } from "../app.js";
import { html } from "../html.js";
import { plural, reviewed, shown } from "../shell/text.js";
import { Rows } from "./diff.js";
import { FileName } from "./edit.js";

export function Question({ question }) {
  const draw = { edit: EditQuestion, conflict: ConflictQuestion, call: CallQuestion }[question.kind];
  return draw ? html`<${draw} question=${question} />` : null;
}

function EditQuestion({ question }) {
  const marks = marksOf(question);
  const hunks = question.files.flatMap((file) => file.hunks);
  const problems = [...question.files.flatMap((file) => file.problems ?? []), ...(question.missing ?? [])];
  return html`<section class="question" role="group" aria-label="Keep these changes?">
    <header>
      <strong>Keep ${plural(hunks.length, "change")}?</strong>
      <span class="spacer"></span>
      <button class="primary" onClick=${() => decide(question, "accept")}>Keep all <kbd>Ctrl ⏎</kbd></button>
      <button onClick=${() => decide(question, "reject")}>Undo all <kbd>Ctrl ⌫</kbd></button>
    </header>
    ${problems.map((problem) => html`<p class="line warning">${shown(problem)}</p>`)}
    ${question.files.map(
      (file) => html`<div class="asked-file">
        <p><${FileName} path=${file.path} /> ${file.is_removed && html`<span class="outcome rejected">is removed</span>`}</p>
        ${file.hunks.map((hunk) => html`<${Hunk} key=${hunk.hunk} hunk=${hunk} mark=${marks.get(hunk.hunk)} question=${question} isOnly=${hunks.length === 1} />`)}
      </div>`,
    )}
  </section>`;
}

function Hunk({ hunk, mark, question, isOnly }) {
  return html`<div class=${`hunk-asked ${mark ?? ""}`}>
    ${!isOnly &&
    html`<div class="choices" role="group" aria-label=${`Change at line ${hunk.new_first}`}>
      <button class="quiet" aria-pressed=${mark === "keep"} onClick=${() => markHunk(question, hunk.hunk, "keep")}>keep</button>
      <button class="quiet" aria-pressed=${mark === "undo"} onClick=${() => markHunk(question, hunk.hunk, "undo")}>undo</button>
    </div>`}
    <${Rows} rows=${[["@", `line ${hunk.old_first}`], ...hunk.rows]} />
  </div>`;
}

function ConflictQuestion({ question }) {
  const [text, setText] = useState(null);
  const resolve = (choice, more = {}) => ask("conversation.resolve", { question: question.question, choice, ...more });
  return html`<section class="question" role="alertdialog" aria-label="The file changed meanwhile">
    <header><strong>The file changed meanwhile</strong> <${FileName} path=${question.path} /></header>
    <p>${shown(question.message)} Nothing was written.</p>
    ${text !== null &&
    html`<textarea class="merge" rows="14" spellcheck="false" aria-label="Merged text" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>`}
    <div class="choices wide">
      <button onClick=${() => resolve("file")}>Leave the file as it is</button>
      <button onClick=${() => resolve("edit")}>Take the edit</button>
      ${text === null
        ? html`<button onClick=${() => setText(question.marked_text)}>Merge by hand</button>`
        : html`<button class="primary" onClick=${() => resolve("text", { text })}>Write the merged text</button>`}
      <button class="quiet" onClick=${() => resolve("stop")}>Write nothing at all</button>
    </div>
  </section>`;
}

function CallQuestion({ question }) {
  const [reason, setReason] = useState("");
  noteAsked(question);
  const answer = (is_allowed, is_kept = false) => approve(question, is_allowed, { is_kept, reason });
  return html`<section class="question" role="alertdialog" aria-label="May this run?">
    <header><strong>May this run?</strong> <code>${reviewed(question.tool)}</code></header>
    <${Asked} text=${question.shown || question.title} />
    <p class="dim">${shown(question.reason)}</p>
    <div class="choices wide">
      <button class="primary" onClick=${() => answer(true)}>Allow <kbd>Ctrl ⏎</kbd></button>
      ${question.can_be_kept && html`<button onClick=${() => answer(true, true)}>Allow from now on</button>`}
      <button onClick=${() => answer(false)}>Refuse <kbd>Ctrl ⌫</kbd></button>
      <input placeholder="why not (for the model)" aria-label="Why not" value=${reason} onInput=${(event) => setReason(event.target.value)} />
    </div>
  </section>`;
}

/** All of what is asked about, line by line as it was written for a person: nothing is cut, and each line has a bar in front. */
export function Asked({ text }) {
  const lines = reviewed(text).split("\n");
  return html`<pre class="asked" dir="ltr"><code>${lines.map((line) => html`<span class="asked-line">${line || " "}</span>`)}</code></pre>
    ${lines.length > 1 && html`<p class="dim">${plural(lines.length, "line")}, ${plural(text.length, "character")}</p>`}`;
}

/** Answer the question with yes or no, from the keyboard. */
export function answerByKey(question, isYes) {
  if (question.kind === "edit") decide(question, isYes ? "accept" : "reject");
  else if (question.kind === "call") approve(question, isYes);
}
