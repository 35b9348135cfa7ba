// What the model reads, part by part, counted by its own tokenizer; and a summary in its place.

import { useEffect, useState } from "preact/hooks";
import { ask, change, state } from "../app.js";
import { html } from "../html.js";
import { useValue } from "../store.js";
import { Dialog } from "./dialog.js";
import { count, shown } from "./text.js";

/** Whether edits are asked about. In the head of a wide talk, too. */
export function Approval({ value }) {
  return html`<select value=${value} onChange=${(event) => ask("conversation.set", { approval: event.target.value })} disabled=${!state.talk.id} title="Edits">
    <option value="ask">ask before writing</option><option value="yes">write at once</option>
  </select>`;
}

/** @typedef {{ used_tokens: number, window_tokens: number, parts: { name: string, tokens: number, text?: string }[] }} Use */

export function ContextDialog() {
  const [use, setUse] = useState(/** @type {Use | null} */ (null));
  const policies = state.welcome?.policies ?? [];
  const approval = useValue(() => state.talk.approval);
  const close = () => change({ dialog: "" });
  useEffect(() => {
    ask("conversation.context", { draft: state.draft }).then((answer) => (answer ? setUse(answer) : close()));
  }, []);
  return html`<${Dialog} label="What the model reads" close=${close} className="context">
    <h2>What the model reads</h2>
    ${use === null
      ? html`<p class="dim">counting …</p>`
      : html`<p>${count(use.used_tokens)} of ${use.window_tokens ? count(use.window_tokens) : "an unknown number of"} tokens</p>
          <table><tbody>${use.parts.map(
            (part) => html`<tr><th>${shown(part.name)}</th><td class="number">${count(part.tokens)}</td><td class="bar"><i style=${{ width: `${(100 * part.tokens) / Math.max(1, use.used_tokens)}%` }}></i></td><td class="begin">${shown((part.text ?? "").slice(0, 80))}</td></tr>`,
          )}</tbody></table>
          <p><label>Edits: <${Approval} value=${approval} /></label></p>
          ${policies.length > 0 && html`<p><label>What calls of tools may do: <select value=${state.talk.policy} onChange=${(event) => ask("conversation.set", { policy: event.target.value })}>
            ${policies.map(({ name, help }) => html`<option value=${name} title=${help}>${shown(name)}</option>`)}</select></label></p>`}
          <p class="choices wide">
            <button onClick=${() => (ask("conversation.compact"), close())} disabled=${state.talk.isRunning || !state.talk.turns.length}>Summarise what was said</button>
            ${state.talk.compacted > 0 && html`<button onClick=${() => (ask("conversation.compact", { is_undone: true }), close())}>Take the summary back</button>`}
          </p>`}
  <//>`;
}
