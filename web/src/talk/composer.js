// Where one types: sends, steers, queues and stops, completes @ with files, and lets the model read along. Owns the keys of the
// prompt and the queue above it. The draft is kept until the server has it.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, change, forgetPrefill, link, queue, send, state, stop, typed } from "../app.js";
import { html } from "../html.js";
import { short, shown } from "../shell/text.js";
import { useValue } from "../store.js";
import { commandsLike, runCommand } from "./commands.js";
import { speedOf } from "./waterfall.js";

/** @typedef {{ paths: string[], from: number, chosen: number, helps?: Record<string, string> }} Found files or commands for what is typed */

export function Composer() {
  const draft = useValue(() => state.draft);
  const isRunning = useValue(() => state.talk.isRunning);
  const isConnected = useValue(() => state.connection === "connected");
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [found, setFound] = useState(/** @type {Found | null} */ (null));
  const isSending = useRef(false);
  const back = useRef(0); // the draft is this message of those that were sent, counted from the last; 0: it is none
  const width = useWidth(field);

  useEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight + 2, innerHeight * 0.4)}px`;
  }, [draft, width]);

  const hand = async (deliver) => {
    const text = state.draft.trim();
    if (!text || isSending.current) return;
    isSending.current = true;
    forgetPrefill();
    const isDelivered = (await runCommand(text)) || (await deliver(text));
    isSending.current = false;
    if (isDelivered && state.draft.trim() === text) typedNothing();
  };
  const typedNothing = () => change({ draft: "" });

  const input = async (event) => {
    const { value, selectionStart } = event.target;
    typed(value);
    const commands = commandsLike(value);
    setFound(commands.length ? { paths: commands.map(([name]) => name), helps: Object.fromEntries(commands), from: 0, chosen: 0 } : await filesFor(value, selectionStart));
  };
  const complete = (path) => {
    if (!found || !field.current) return;
    const end = field.current.selectionStart;
    const value = `${draft.slice(0, found.from)}${found.helps ? path : `@${path}`} ${draft.slice(end)}`;
    typed(value);
    setFound(null);
    field.current.focus();
  };
  const keydown = (event) => {
    if (event.isComposing) return;
    const isWholeCommand = found?.helps && found.paths[found.chosen] === draft.trim(); // Enter runs it
    if (found?.paths.length && !(isWholeCommand && event.key === "Enter") && handleChoice(event, found, setFound, complete)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      setFound(null);
      hand(send);
    } else if (event.key === "Tab" && !event.shiftKey && isRunning && draft.trim()) {
      event.preventDefault();
      hand(queue);
    } else if (recalls(event, back)) {
      event.preventDefault();
      typed(sent(back.current));
    }
  };

  return html`<form class="composer" onSubmit=${(event) => event.preventDefault()}>
    <${Queue} />
    ${found && found.paths.length > 0 && html`<${Choices} found=${found} complete=${complete} />`}
    <div class="field">
      <textarea ref=${field} id="prompt" rows="1" dir="auto" aria-label=${isRunning ? "Steer the running turn" : "Message"}
        placeholder=${fitting(isRunning ? STEERING : ASKING, field.current)}
        value=${draft} onInput=${input} onKeyDown=${keydown} autocomplete="off" aria-autocomplete="list"
        aria-controls=${found?.paths.length ? "choices" : undefined} aria-activedescendant=${found?.paths.length ? `choice-${found.chosen}` : undefined}></textarea>
      <div class="buttons">
        ${isRunning && html`<button type="button" onClick=${() => hand(queue)} disabled=${!draft.trim()} title="Tab">Queue</button>`}
        ${isRunning && html`<button type="button" class="stop" onClick=${stop} title="Esc">Stop</button>`}
        <button type="button" class="primary" onClick=${() => hand(send)} disabled=${!draft.trim() || !isConnected} title="Enter">${isRunning ? "Steer" : "Send"}</button>
      </div>
    </div>
    <${Hints} />
  </form>`;
}

/** Return a message that was sent before, counted from the last one; "" for none. */
function sent(number) {
  return number ? (state.talk.turns[state.talk.turns.length - number]?.text ?? "") : "";
}

/** Move `back` where an arrow leads out of a draft that nobody has changed. Return whether it did. */
function recalls({ key, target }, back) {
  const draft = state.draft; // what was drawn may be a key behind
  const step = { ArrowUp: 1, ArrowDown: -1 }[key];
  if (!draft) back.current = 0;
  if (!step || draft !== sent(back.current)) return false;
  const beyond = step > 0 ? draft.slice(0, target.selectionStart) : draft.slice(target.selectionEnd);
  const next = back.current + step;
  if (beyond.includes("\n") || next < 0 || next > state.talk.turns.length) return false;
  back.current = next;
  return true;
}

// What an empty prompt says, in fewer and fewer words.
const ASKING = ["Ask, or say what to change. @ names a file.", "Ask, or say what to change", "Ask or change"];
const STEERING = ["Say something else: Enter steers, Tab queues", "Say something else", "Steer"];

/** Return the first text that has room in one line of the field, or the last. */
function fitting(texts, field) {
  const pen = document.createElement("canvas").getContext("2d");
  if (!field || !pen) return texts[texts.length - 1];
  const { font, paddingLeft, paddingRight } = getComputedStyle(field);
  const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  pen.font = font;
  return texts.find((text) => pen.measureText(text).width < room) ?? texts[texts.length - 1];
}

/** Return how wide an element is, and draw again when that changes. */
function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(ref.current?.clientWidth ?? 0));
    if (ref.current) observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

function Hints() {
  const warm = useValue(() => state.talk.warm);
  const times = useValue(() => state.talk.turns.findLast((turn) => turn.times)?.times);
  const activity = useValue(() => state.talk.activity);
  const faces = useValue(() => state.talk.faces);
  const speed = speedOf(times);
  return html`<div class="hints">
    <span class="keys"><kbd>⏎</kbd> ${state.talk.isRunning ? "steer" : "send"} <kbd>⇥</kbd> queue <kbd>esc</kbd> stop <kbd>?</kbd> keys</span>
    <span class="spacer"></span>
    <span role="status">${activity && shown(activity)}</span>
    ${faces > 1 && html`<span>open in ${faces} places</span>`}
    ${warm && warm.prompt_tokens > 0 && html`<span class="warm" title="tokens of the prompt that the model has read already"><i style=${{ width: `${Math.min(100, (100 * warm.warm_tokens) / warm.prompt_tokens)}%` }}></i>${short(warm.warm_tokens)} read</span>`}
    ${speed > 0 && html`<span title="speed of the last turn">${speed < 100 ? speed.toFixed(1) : Math.round(speed)} tok/s</span>`}
  </div>`;
}

function Queue() {
  const messages = useValue(() => state.talk.queue);
  const [edited, setEdited] = useState(/** @type {{ id: number, text: string } | null} */ (null));
  if (!messages.length) return null;
  const save = () => {
    if (edited) ask("conversation.queue.edit", { message: edited.id, text: edited.text });
    setEdited(null);
  };
  return html`<ol class="queue" aria-label="Messages that wait">
    ${messages.map((message) =>
      edited?.id === message.id
        ? html`<li key=${message.id}><input aria-label="Queued message" value=${edited.text} onInput=${(event) => setEdited({ id: message.id, text: event.target.value })}
            onKeyDown=${(event) => { if (event.key === "Enter") save(); if (event.key === "Escape") { event.stopPropagation(); setEdited(null); } }} /><button type="button" onClick=${save}>save</button></li>`
        : html`<li key=${message.id}><span dir="auto">${shown(message.text)}</span>
            <button type="button" class="quiet" onClick=${() => setEdited({ id: message.id, text: message.text })}>edit</button>
            <button type="button" class="quiet" onClick=${() => ask("conversation.queue.remove", { message: message.id })}>remove</button></li>`,
    )}
  </ol>`;
}

// ---- @ ---------------------------------------------------------------------------------------------------------------

function Choices({ found, complete }) {
  return html`<ul class="choices-list" id="choices" role="listbox" aria-label=${found.helps ? "Commands" : "Files"}>
    ${found.paths.map((path, n) => html`<li key=${path} id=${`choice-${n}`} role="option" aria-selected=${n === found.chosen} onMouseDown=${(event) => { event.preventDefault(); complete(path); }}><bdi>${shown(path)}</bdi>${found.helps && html` <span class="dim">${found.helps[path]}</span>`}</li>`)}
  </ul>`;
}

/** Return files for the word behind an @ at the cursor, or null. @returns {Promise<Found | null>} */
async function filesFor(text, cursor) {
  const word = /(?:^|\s)@([^\s@]*)$/.exec(text.slice(0, cursor));
  if (!word) return null;
  try {
    const { paths } = await link.call("files.find", { words: word[1], limit: 8 });
    const isWhole = paths.length === 0 || paths[0] === word[1];
    return state.draft === text && !isWhole ? { paths, from: cursor - word[1].length - 1, chosen: 0 } : null;
  } catch {
    return null;
  }
}

function handleChoice(event, found, setFound, complete) {
  const moves = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in moves) setFound({ ...found, chosen: (found.chosen + moves[event.key] + found.paths.length) % found.paths.length });
  else if (event.key === "Enter" || event.key === "Tab") complete(found.paths[found.chosen]);
  else if (event.key === "Escape") setFound(null);
  else return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}
