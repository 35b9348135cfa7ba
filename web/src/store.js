// The state that is shown, and when it is shown: changes are collected until the next animation frame, and drawn once.
// Owns the frame and who is told. Does not own what the state means (`app`, `talk/fold`).

import { useEffect, useReducer, useRef } from "preact/hooks";

/** How often things happened. A test reads these: they do not depend on how fast the machine is. */
export const counts = { events: 0, frames: 0, drawings: 0, chunks: 0, colourings: 0 };
globalThis.vivaceCounts = counts;

const listeners = new Set();
let isWaiting = false;

/** Say that something has changed. Everything that changes until the next frame is drawn together. */
export function touch() {
  if (isWaiting) return;
  isWaiting = true;
  if (document.hidden) setTimeout(draw, 200); // a hidden page has no frames
  else requestAnimationFrame(draw);
}

function draw() {
  isWaiting = false;
  counts.frames += 1;
  for (const listener of [...listeners]) listener();
}

/** Return a function that draws the component again. */
export function useAgain() {
  const [, again] = useReducer((/** @type {number} */ n, /** @type {void} */ _) => n + 1, 0);
  return again;
}

/**
 * Return what `read` returns, and draw the component again after a frame in which that has changed.
 * @template Value @param {() => Value} read
 */
export function useValue(read) {
  const again = useAgain();
  const value = read();
  const last = useRef({ read, value });
  last.current = { read, value };
  useEffect(() => {
    const look = () => {
      if (!Object.is(last.current.read(), last.current.value)) again();
    };
    listeners.add(look);
    look(); // it may have changed between drawing and listening
    return () => listeners.delete(look);
  }, []);
  return value;
}

/** Call this in every frame in which something has changed, until the returned function is called. */
export function everyFrame(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
