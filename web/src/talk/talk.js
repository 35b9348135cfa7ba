// The conversation: its head, its turns, what is asked, and the prompt. Owns the order of these on the screen.

import { useState } from "preact/hooks";
import { ask, change, openTalk, renameTalk, state } from "../app.js";
import { html } from "../html.js";
import { Approval } from "../shell/context.js";
import { Icon } from "../shell/icons.js";
import { count, short, shown } from "../shell/text.js";
import { useValue } from "../store.js";
import { Composer } from "./composer.js";
import { nameOf } from "./fold.js";
import { Markdown } from "./markdown.js";
import { Question } from "./questions.js";
import { Turn } from "./turn.js";
import { WindowedList } from "./windowed_list.js";

export function Talk() {
  return html`<section class="talk" aria-label="Conversation">
    <${Head} />
    <${Turns} />
    <${Composer} />
  </section>`;
}

function Turns() {
  const version = useValue(() => state.talk.version);
  const { talk } = state;
  const items = talk.turns.map((turn) => ({ key: turn.number, turn, version: turn.version }));
  const end = html`<div class="end">
    ${talk.side && html`<${Side} side=${talk.side} />`}
    ${[...talk.questions.values()].map((question) => html`<${Question} key=${question.question} question=${question} />`)}
  </div>`;
  return html`<${WindowedList} items=${items} identity=${talk.id} version=${version} label="Conversation" end=${items.length || talk.side || talk.questions.size ? end : html`<${Empty} />`}
    row=${({ turn, version: drawn }) => html`<${Turn} turn=${turn} version=${drawn} />`} />
    <${Announcer} />`;
}

/** Tell a screen reader when an answer is whole, not every word of it. */
function Announcer() {
  const text = useValue(() => {
    const last = state.talk.turns[state.talk.turns.length - 1];
    if (state.talk.questions.size) return "A question waits for your answer.";
    if (!last) return "";
    return last.status === "running" ? "Answering." : `Turn ${last.number} ${last.status}.`;
  });
  return html`<p class="hidden" role="status" aria-live="polite">${text}</p>`;
}

function Side({ side }) {
  side.markdown.settle();
  return html`<section class="side-answer" aria-label="Beside the conversation">
    <header><span class="label">beside</span> ${shown(side.question)} <button class="quiet" onClick=${() => { state.talk.side = null; state.talk.version += 1; change({}); }}>close</button></header>
    <${Markdown} blocks=${side.markdown.blocks} growing=${side.markdown.growing} />
  </section>`;
}

function Empty() {
  const folder = useValue(() => state.welcome?.folder ?? "");
  return html`<div class="empty">
    <h2>Vivace</h2>
    <p>${shown(folder)}</p>
    <ul>
      <li>Ask about the code, or say what to change.</li>
      <li>The model reads while you type, and turns around when you say something else.</li>
      <li>Edits grow in the file beside. Nothing is written before you keep it.</li>
    </ul>
  </div>`;
}

function Head() {
  useValue(() => `${state.talk.id} ${state.talk.title} ${state.talk.turns[0]?.text} ${state.talk.model} ${state.talk.effort} ${state.talk.approval} ${state.welcome?.models.length}`);
  const { talk, welcome } = state;
  const set = (name) => (event) => ask("conversation.set", { [name]: event.target.value });
  return html`<header class="head">
    <button class="icon narrow" aria-label="Show conversations and files" onClick=${() => change({ pane: "side" })}><${Icon} name="menu" /></button>
    <${Title} talk=${talk} />
    <label class="pick"><span class="hidden">Model</span>
      <select value=${talk.model} onChange=${set("model")} disabled=${!talk.id}>
        <${Models} models=${welcome?.models ?? []} current=${talk.model} />
      </select></label>
    <label class="pick"><span class="hidden">Effort</span>
      <select value=${talk.effort} onChange=${set("effort")} disabled=${!talk.id} title="Effort">
        ${(welcome?.efforts ?? []).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label>
    <label class="pick wide-only"><span class="hidden">Edits</span>
      <${Approval} value=${talk.approval} /></label>
    <${Meter} />
    <button class="icon" aria-label="New conversation" title="New conversation (Alt+N)" onClick=${() => openTalk("")}><${Icon} name="plus" /></button>
  </header>`;
}

/** Those that answer at once, and below them those that are downloaded first. */
function Models({ models, current }) {
  const known = models.some(({ name }) => name === current) || !current ? models : [{ name: current }, ...models];
  const options = (rows) => rows.map(({ name, title }) => html`<option key=${name} value=${name} title=${shown(title)}>${shown(name)}</option>`);
  const absent = known.filter(({ is_here }) => is_here === false);
  return html`${options(known.filter(({ is_here }) => is_here !== false))}
    ${absent.length > 0 && html`<optgroup label="downloaded first">${options(absent)}</optgroup>`}`;
}

function Title({ talk }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const name = nameOf(talk);
  if (text === null) return html`<h2 class="title"><button onClick=${() => setText(name)} title="Rename" disabled=${!talk.turns.length}><bdi>${shown(name)}</bdi></button></h2>`;
  const save = () => {
    if (text.trim() && text !== name) renameTalk(talk.id, text.trim());
    setText(null);
  };
  return html`<input class="title" aria-label="Title" value=${text} onInput=${(event) => setText(event.target.value)} onBlur=${save}
    onKeyDown=${(event) => { if (event.key === "Enter") save(); if (event.key === "Escape") { event.stopPropagation(); setText(null); } }} ref=${(element) => element?.focus()} />`;
}

/** How much of the model's window is used: always in sight. */
function Meter() {
  const used = useValue(() => state.talk.usedTokens);
  const window = useValue(() => state.talk.windowTokens);
  const share = window ? Math.min(1, used / window) : 0;
  const level = share > 0.9 ? "full" : share > 0.7 ? "high" : "";
  return html`<button class=${`meter ${level}`} onClick=${() => change({ dialog: "context" })} title="What the model reads"
    aria-label=${`Context: ${count(used)} of ${window ? count(window) : "unknown"} tokens`}>
    <span class="bar" aria-hidden="true"><i style=${{ width: `${Math.max(share * 100, used ? 2 : 0)}%` }}></i></span>
    <span>${short(used)}${window ? ` / ${short(window)}` : ""}</span>
  </button>`;
}
