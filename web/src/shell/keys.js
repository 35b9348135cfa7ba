// Keys that work everywhere, and the list of all keys. Those of the prompt are in `talk/composer`, those of the editor are CodeMirror's.

import { change, notify, openQuestion, openTalk, state, stop } from "../app.js";
import { save } from "../files/buffers.js";
import { html } from "../html.js";
import { answerOf } from "../talk/fold.js";
import { answerByKey } from "../talk/questions.js";
import { copyAndSay } from "./copy.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  ["Enter", "send; while a turn runs: steer it"],
  ["Shift Enter", "a new line"],
  ["↑ ↓", "in an empty prompt: what was sent before"],
  ["Tab", "queue the message while a turn runs"],
  ["Esc", "stop the turn"],
  ["@", "name a file"],
  ["/", "at the beginning of a message: commands, as in the terminal; elsewhere: to the prompt"],
  ["Ctrl Enter", "keep all changes, or allow the call"],
  ["Ctrl Backspace", "undo all changes, or refuse the call"],
  ["Ctrl P", "open a file"],
  ["Ctrl S", "save the file"],
  ["Alt N", "a new conversation"],
  ["Alt C", "copy the last answer as Markdown"],
  ["Alt 1 … 4", "conversations, files, tasks, numbers"],
  ["?", "these keys"],
];
export const VIEWS = ["talks", "files", "tasks", "numbers"];

export function listenToKeys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || state.dialog) return;
    const handler = handlerFor(event);
    if (!handler) return;
    event.preventDefault();
    handler();
  });
}

function handlerFor(event) {
  const { key, altKey, code } = event;
  const isCommand = event.ctrlKey || event.metaKey;
  const question = openQuestion();
  if (isCommand && !altKey) {
    if (key === "Enter" && question) return () => answerByKey(question, true);
    if (key === "Backspace" && question && !hasText(event.target)) return () => answerByKey(question, false);
    if (key.toLowerCase() === "p" && !event.shiftKey) return () => change({ dialog: "open" });
    if (key.toLowerCase() === "s") return () => save();
    return null;
  }
  if (altKey) {
    const digit = /^Digit([1-4])$/.exec(code);
    if (digit) return () => change({ view: VIEWS[Number(digit[1]) - 1] });
    return { KeyN: () => openTalk("").then(focusPrompt), KeyC: copyLastAnswer }[code];
  }
  if (key === "Escape") return state.talk.isRunning ? stop : null;
  if (isTyping(event.target)) return null;
  if (key === "?") return () => change({ dialog: "keys" });
  return key === "/" ? focusPrompt : null;
}

function copyLastAnswer() {
  const last = state.talk.turns.findLast(answerOf);
  if (last) copyAndSay(answerOf(last), "The last answer");
  else notify("There is no answer to copy yet.");
}

export function focusPrompt() {
  document.getElementById("prompt")?.focus();
}

/** The editor stands in a shadow root: from outside, its host is the target. */
function isTyping(element) {
  return Boolean(element.closest?.("input, textarea, select, [contenteditable]")) || Boolean(element.shadowRoot);
}

function hasText(element) {
  return isTyping(element) && element.value !== "";
}

export function KeyList() {
  return html`<${Dialog} label="Keys" close=${() => change({ dialog: "" })} className="key-list">
    <h2>Keys</h2>
    <dl>${KEYS.map(([keys, meaning]) => html`<div><dt>${keys.split(" ").map((key) => (key === "…" ? "… " : html`<kbd>${key}</kbd> `))}</dt><dd>${meaning}</dd></div>`)}</dl>
  <//>`;
}
