// Suggestions that were made: whoever types what was suggested, or takes it, is not a reason to ask again.
//
// Owns what is remembered and when it still fits. Knows nothing of VS Code or of the server.
"use strict";

const KEPT = 32;
const OPENS = /[:{([]\s*$/;
const BLANK = /^\s*$/;

/** @typedef {{ file: string, prefix: string, suffix: string, text: string }} Suggestion */

class Suggestions {
  constructor() {
    /** @type {Suggestion[]} newest first */
    this._made = [];
  }

  /** @param {Suggestion} suggestion */
  put(suggestion) {
    this._made = [suggestion, ...this._made].slice(0, KEPT);
  }

  /**
   * Return what is left of a suggestion that fits the text around the cursor: "" if all of it is there, undefined
   * if none fits.
   * @param {string} file @param {string} prefix @param {string} suffix @returns {string | undefined}
   */
  find(file, prefix, suffix) {
    for (const made of this._made) {
      if (made.file !== file || made.suffix !== suffix || !prefix.startsWith(made.prefix)) continue;
      const typed = prefix.slice(made.prefix.length);
      if (made.text.startsWith(typed)) return made.text.slice(typed.length);
    }
    return undefined;
  }
}

/**
 * Return how much to ask for at a cursor: nothing inside of a word, a block where a line begins, otherwise one line.
 * @param {string} before the line up to the cursor @param {string} after the rest of the line
 * @param {boolean} mayBeBlock @returns {{ stop: string[], max_tokens: number } | null}
 */
function extent(before, after, mayBeBlock) {
  if (/^\w/.test(after)) return null;
  const begins = BLANK.test(before) || OPENS.test(before);
  if (mayBeBlock && begins && BLANK.test(after)) return { stop: ["\n\n"], max_tokens: 96 };
  return { stop: ["\n"], max_tokens: 40 };
}

/**
 * Return the text to suggest: without what stands behind the cursor anyway, and without blanks at its end.
 * @param {string} text @param {string} after the rest of the line
 */
function tidied(text, after) {
  const rest = after.trimEnd();
  let kept = text.trimEnd();
  if (rest && kept.endsWith(rest)) kept = kept.slice(0, -rest.length);
  return kept;
}

module.exports = { Suggestions, extent, tidied };
