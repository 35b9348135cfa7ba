// One turn: the user's message, and all that came of it in the order in which it came. Owns how each part looks.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, forkTalk, rewindTo, state } from "../app.js";
import { html } from "../html.js";
import { Copy } from "../shell/copy.js";
import { focusPrompt } from "../shell/keys.js";
import { memo } from "../shell/memo.js";
import { relative, shown } from "../shell/text.js";
import { counts, useAgain } from "../store.js";
import { Edit } from "./edit.js";
import { answerOf } from "./fold.js";
import { Markdown } from "./markdown.js";
import { blocksOf } from "./markdown_stream.js";
import { Waterfall } from "./waterfall.js";

const CHARS_A_FRAME = 2_000; // 30,000 tokens a second at 60 frames

export const Turn = memo(
  ({ turn }) => {
    counts.drawings += 1;
    return html`<article class="turn" aria-label=${`Turn ${turn.number}`}>
      <${Message} turn=${turn} />
      ${turn.parts.map((part, n) => html`<${Part} key=${n} part=${part} isLive=${turn.status === "running"} />`)}
      ${turn.status === "running" && !turn.parts.some(isText) && !state.talk.questions.size && html`<p class="waiting" role="status">reading</p>`}
      ${ENDINGS[turn.status] && html`<p class="line">${ENDINGS[turn.status]}</p>`}
      ${turn.status !== "running" && answerOf(turn) && html`<p class="answer-actions"><${Copy} text=${() => answerOf(turn)} label="Copy the answer as Markdown" words="copy answer" /></p>`}
      ${turn.times && html`<${Waterfall} times=${turn.times} />`}
    </article>`;
  },
  (before, after) => before.turn === after.turn && before.version === after.version,
);

const ENDINGS = { stopped: "Stopped. What was written is kept.", cut: "Cut at the limit of tokens." };
const isText = ({ type }) => type === "answer" || type === "edit" || type === "reasoning" || type === "error";

function Message({ turn }) {
  const [isAsking, setAsking] = useState(false);
  const goBack = (code) => rewindTo(turn, { code }).then(focusPrompt);
  return html`<header class="message">
    <p dir="auto">${shown(turn.text)}</p>
    <div class="actions">
      <button class="quiet" onClick=${() => setAsking(!isAsking)} aria-expanded=${isAsking} aria-label="Edit and resend this message">edit</button>
      <button class="quiet" onClick=${() => forkTalk(state.talk.id)} aria-label="Fork the conversation">fork</button>
    </div>
    ${isAsking &&
    html`<div class="ask" role="group" aria-label="Go back to before this message">
      <span>Go back to before this message:</span>
      <button onClick=${() => goBack(true)}>words and files</button>
      <button onClick=${() => goBack(false)}>words only</button>
      <button class="quiet" onClick=${() => setAsking(false)}>cancel</button>
    </div>`}
  </header>`;
}

const PARTS = {
  answer: ({ part, isLive }) => html`<div class=${part.isAbandoned ? "abandoned" : ""}><${Growing} stream=${part.markdown} isLive=${isLive} /></div>`,
  reasoning: ({ part, isLive }) =>
    html`<details class="reasoning"><summary>thinking${state.talk.isRunning && html` <button class="quiet" onClick=${() => ask("conversation.answer_now")}>answer now</button>`}</summary><${Growing} stream=${part.markdown} isLive=${isLive} /></details>`,
  edit: ({ part }) => html`<${Edit} part=${part} />`,
  steer: ({ part }) => html`<p class="steer" dir="auto"><span class="label">steer</span>${shown(part.text)}</p>`,
  line: ({ part }) => html`<p class=${part.isWarning ? "line warning" : "line"}>${shown(part.text)}</p>`,
  file: ({ part }) => html`<p class="line">in ${shown(relative(part.path, state.talk.folder))}</p>`,
  reading: ({ part }) => html`<p class="line">reading ${shown(part.names.join(", "))}</p>`,
  summary: ({ part }) =>
    html`<details class="reasoning"><summary>The model reads this summary of what was said before</summary><${Markdown} blocks=${blocksOf(part.text)} /></details>`,
  plan: ({ part }) =>
    html`<ol class="plan" aria-label="Plan">${part.units.map(
      (unit) => html`<li><code>${shown(unit.unit)}</code> <span class="dim">${shown(relative(unit.path, state.talk.folder))} · ${shown(unit.why)}</span></li>`,
    )}</ol>`,
  todo: ({ part }) =>
    html`<ol class="plan" aria-label="Plan">${part.steps.map((step) => html`<li class=${`step-${step.status}`}>${shown(step.step)}</li>`)}</ol>`,
  tool: ({ part }) =>
    html`<p class=${`tool ${part.status}`}><span class="dot" aria-hidden="true"></span><code>${shown(part.title)}</code>
      <span class="dim">${shown(part.summary ?? part.status)}</span></p>`,
  error: ({ part }) => html`<p class="error" role="alert">${shown(part.message)} <span class="dim">${shown(part.hint)}</span></p>`,
};

function Part({ part, isLive }) {
  const draw = PARTS[part.type];
  return draw ? html`<${draw} part=${part} isLive=${isLive} />` : null;
}

/** Text that grows: so much of it a frame that the frame stays short, however much has come. What was said before comes at once. */
function Growing({ stream, isLive = false }) {
  const again = useAgain();
  const isFirst = useRef(true);
  stream.settle(isFirst.current && !isLive ? Infinity : CHARS_A_FRAME);
  isFirst.current = false;
  useEffect(() => {
    const frame = stream.isBehind ? requestAnimationFrame(() => again()) : 0;
    return () => cancelAnimationFrame(frame);
  });
  return html`<${Markdown} blocks=${stream.blocks} growing=${stream.growing} />`;
}
