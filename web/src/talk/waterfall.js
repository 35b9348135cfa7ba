// Where a turn's time went, as a picture: a bar for each request of the model, in time from left to right. Owns the drawing and
// its words; the numbers are the server's.

import { useState } from "preact/hooks";
import { html } from "../html.js";
import { count, duration, shown } from "../shell/text.js";

const STAGES = [
  ["queue_ms", "waiting"],
  ["tokenize_ms", "text to tokens"],
  ["restore_ms", "from disk"],
  ["prefill_ms", "prefill"],
  ["decode_ms", "decode"],
  ["server_ms", "server"],
];
const WIDTH = 1000;
const ROW = 14;

export function Waterfall({ times }) {
  const [isOpen, setOpen] = useState(false);
  const total = times.turns.reduce((sum, turn) => sum + lengthOf(turn), 0) || 1;
  return html`<footer class="waterfall">
    <button class="picture" onClick=${() => setOpen(!isOpen)} aria-expanded=${isOpen} aria-label=${`Where the time went. ${inWords(times)}`}>
      <svg viewBox=${`0 0 ${WIDTH} ${ROW * times.turns.length}`} preserveAspectRatio="none" style=${{ height: `${times.turns.length * 6}px` }} aria-hidden="true">
        ${bars(times.turns, total)}
      </svg>
      <span class="numbers">${inWords(times)}</span>
    </button>
    ${isOpen && html`<${Stages} turns=${times.turns} />`}
  </footer>`;
}

function bars(turns, total) {
  let x = 0;
  return turns.map((turn, row) =>
    STAGES.map(([field, name]) => {
      const width = ((turn[field] ?? 0) / total) * WIDTH;
      const bar = html`<rect class=${field} x=${x} y=${row * ROW + 2} width=${Math.max(width, width > 0 ? 1.5 : 0)} height=${ROW - 4}><title>${turn.name}: ${name} ${duration(turn[field] ?? 0)}</title></rect>`;
      x += width;
      return bar;
    }),
  );
}

function Stages({ turns }) {
  return html`<div class="table"><table class="stages">
    <thead><tr><th></th>${turns.map((turn) => html`<th>${shown(turn.name)}</th>`)}</tr></thead>
    <tbody>
      ${STAGES.map(([field, name]) => html`<tr><th><i class=${`swatch ${field}`}></i>${name}</th>${turns.map((turn) => html`<td>${duration(turn[field] ?? 0)}</td>`)}</tr>`)}
      ${[["cached_tokens", "cached"], ["new_tokens", "read"], ["reread_tokens", "read again"], ["output_tokens", "written"], ["draft_accepted", "drafts right"], ["draft_rejected", "drafts wrong"]].map(
        ([field, name]) => html`<tr><th>${name}</th>${turns.map((turn) => html`<td>${count(turn[field] ?? 0)}</td>`)}</tr>`,
      )}
    </tbody>
  </table></div>`;
}

function lengthOf(turn) {
  return STAGES.reduce((sum, [field]) => sum + (turn[field] ?? 0), 0);
}

export function speedOf(times) {
  const last = times?.turns[times.turns.length - 1];
  return last && last.output_tokens > 1 && last.decode_ms > 0 ? ((last.output_tokens - 1) / last.decode_ms) * 1000 : 0;
}

function inWords(times) {
  const sum = (field) => times.turns.reduce((all, turn) => all + (turn[field] ?? 0), 0);
  const last = times.turns[times.turns.length - 1] ?? {};
  const speed = speedOf(times);
  const parts = [
    `first token ${duration(times.first_token_ms)}`,
    `${count(last.output_tokens ?? 0)} tokens${speed ? ` at ${speed < 100 ? speed.toFixed(1) : Math.round(speed)} tok/s` : ""}`,
    `${count(sum("cached_tokens"))} cached + ${count(sum("new_tokens"))} read`,
  ];
  return parts.join(" · ");
}
