// Colours for code in the talk. Owns the loading of the languages, which come with the editor in a file of their own when the
// first piece of code is shown; until then code is plain.

import { useValue, touch } from "../store.js";

const AGAIN_MS = 2000; // after a file that could not be loaded

let languages = null; // the module, once it is there
let isLoading = false;
let failedAt = -Infinity;
const highlighters = new Map(); // language → function or null

let editor = null; // the promise of the module
let failures = 0;

/** Return a function that cuts code into pairs of text and class, or null where there is none (yet). */
export function useHighlighter(language) {
  return useValue(() => highlighterFor(language));
}

function highlighterFor(language) {
  if (!language) return null;
  if (!languages) {
    load();
    return null;
  }
  if (!highlighters.has(language)) highlighters.set(language, languages.highlighter(language));
  return highlighters.get(language);
}

async function load() {
  if (isLoading || performance.now() < failedAt + AGAIN_MS) return; // it is asked for in every frame with code
  isLoading = true;
  try {
    languages = await loadEditor();
    touch();
  } catch {
    failedAt = performance.now();
  }
  isLoading = false;
}

/**
 * Return the module with CodeMirror and the languages. Where it could not be loaded it is asked for under another address the next time:
 * browsers keep in mind that one has failed (Chromium up to 150 at least).
 * @returns {Promise<typeof import("./editor.js")>}
 */
export function loadEditor() {
  editor ??= import(new URL(failures ? `editor.js?${failures}` : "editor.js", import.meta.url).href).catch((error) => {
    failures += 1;
    editor = null;
    throw error;
  });
  return editor;
}
