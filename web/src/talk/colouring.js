// When code is coloured: chunks of a group that is near what can be seen, in what is left of a frame. Parsing and some hundred elements a
// chunk cost milliseconds, so a few chunks a frame are coloured and the others wait. Owns the order and the budget.

import { counts } from "../store.js";
import { shown } from "../shell/text.js";

const BUDGET_MS = 4; // of a frame
const MOST_CHUNKS = 3; // of a frame: what they cost in layout is not measured
const NEAR_PX = 400;

const waiting = new Set();
const watched = new WeakMap(); // element → group
let isPlanned = false;

const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const group = watched.get(target);
      group.isNear = isIntersecting;
      if (isIntersecting) group.chunks.forEach(colourSoon);
    }
  },
  { rootMargin: `${NEAR_PX}px` },
);

/** Colour the chunks of this group when it comes near what can be seen. */
export function watch(group) {
  watched.set(group.element, group);
  observer.observe(group.element);
}

export function forget(group) {
  observer.unobserve(group.element);
  for (const chunk of group.chunks) waiting.delete(chunk);
}

/** Colour this chunk soon, if it is near and not coloured as it is. */
export function colourSoon(chunk) {
  if (!chunk.group.isNear || !chunk.highlighter || chunk.coloured === chunk.text) return;
  waiting.add(chunk);
  plan();
}

function plan() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(colourSome);
}

function colourSome() {
  isPlanned = false;
  const began = performance.now();
  let left = MOST_CHUNKS;
  for (const chunk of waiting) {
    waiting.delete(chunk);
    if (!chunk.group.isNear) continue; // it is watched, and comes again
    colour(chunk);
    left -= 1;
    if (!left || performance.now() - began > BUDGET_MS) break;
  }
  if (waiting.size) plan();
}

function colour(chunk) {
  counts.colourings += 1;
  chunk.coloured = chunk.text;
  chunk.element.replaceChildren(...chunk.highlighter(chunk.text).map(([text, style]) => pieceOf(shown(text), style)));
}

function pieceOf(text, style) {
  if (!style) return text;
  const element = document.createElement("span");
  element.className = style;
  element.textContent = text;
  return element;
}
