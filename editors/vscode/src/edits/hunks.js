// The changes of an edit in a document that the user goes on to use: each is kept or undone alone.
//
// Owns where each hunk is while lines are added and removed around it. Pure: knows nothing of VS Code.
"use strict";

const { difference, spliced } = require("./lines");

/**
 * @typedef {{ id: number, start: number, count: number, old: string[] }} Hunk lines of the document, from 0, and what stood there
 * @typedef {{ first: number, last: number, startsLine: boolean, text: string }} Change lines that were replaced by a text;
 *   `startsLine`: it begins and ends at the beginning of a line
 */

class Hunks {
  constructor() {
    /** @type {Hunk[]} in order */
    this.all = [];
    this._next = 1;
  }

  /** Say anew what differs, from the user's own lines to those of the document. @param {string[]} mine @param {string[]} now */
  set(mine, now) {
    let shift = 0;
    this.all = difference(mine, now).map(({ start, count, lines }) => {
      const hunk = { id: this._next++, start: start + shift, count: lines.length, old: mine.slice(start, start + count) };
      shift += lines.length - count;
      return hunk;
    });
  }

  /** Return the document's lines without our changes. @param {string[]} now */
  without(now) {
    return spliced(now, this.all.map(({ start, count, old }) => ({ start, count, lines: old })));
  }

  /**
   * Follow a change of the user's. Return whether it touched a hunk. One that reaches over a hunk's border makes
   * the hunk the user's own: it is forgotten.
   * @param {Change} change
   */
  follow({ first, last, startsLine, text }) {
    const added = (text.match(/\r\n|\r|\n/g) ?? []).length;
    const isWhole = startsLine && (text === "" || /[\r\n]$/.test(text));
    const end = isWhole ? last : last + 1; // behind the last line that it touched
    const delta = added - (last - first);
    let touched = false;
    this.all = this.all.filter((hunk) => {
      const behind = hunk.start + hunk.count;
      if (end <= hunk.start) hunk.start += delta;
      else if (first < behind) {
        touched = true;
        if (first < hunk.start || end > behind) return false;
        hunk.count += delta;
      }
      return true;
    });
    return touched;
  }

  /** Forget hunks whose old lines stand in the document again. @param {string[]} now */
  settle(now) {
    this.all = this.all.filter(({ start, count, old }) => {
      return count !== old.length || old.some((line, index) => now[start + index] !== line);
    });
  }

  /** Keep one as it is. @param {number} id */
  keep(id) {
    this.all = this.all.filter((hunk) => hunk.id !== id);
  }

  /** Return the hunk at a line of the document, or the nearest one below, or the last. @param {number} line */
  at(line) {
    return this.all.find(({ start, count }) => line < start + Math.max(1, count)) ?? this.all.at(-1);
  }

  /** Return one by its id. @param {number} id */
  find(id) {
    return this.all.find((hunk) => hunk.id === id);
  }
}

module.exports = { Hunks };
