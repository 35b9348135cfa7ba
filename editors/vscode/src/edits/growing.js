// A unit that is being rewritten, as it looks so far: its new lines, and below them what of the old is still to come.
//
// Owns which old lines a new text has passed already. Pure: knows nothing of VS Code.
"use strict";

const { linesOf } = require("./lines");

class Growing {
  /**
   * @param {readonly string[]} draft the whole file as it was before this unit
   * @param {number} first the unit's first line, from 1 @param {number} last its last line; first - 1: it is new
   */
  constructor(draft, first, last) {
    this._draft = draft;
    this.first = first;
    this.last = last;
    this._old = draft.slice(first - 1, last);
    /** @type {string[]} complete new lines */
    this._lines = [];
    this._partial = "";
    this._passed = 0; // old lines that stand in the new text, or were left out by it
  }

  /** Take more of the new text. @param {string} delta */
  feed(delta) {
    const lines = linesOf(this._partial + delta);
    this._partial = lines.pop() ?? "";
    for (const line of lines) {
      this._lines.push(line);
      const found = this._old.indexOf(line, this._passed);
      if (found >= 0 && (line.trim() || found === this._passed)) this._passed = found + 1;
    }
  }

  /** Return the whole file with the unit as it stands. */
  get lines() {
    return this._around([...this._written(), ...this._old.slice(this._passed)]);
  }

  /** Return the whole file if nothing more of the unit comes. */
  get whole() {
    return this._around(this._written());
  }

  _written() {
    return this._partial ? [...this._lines, this._partial] : this._lines;
  }

  /** @param {string[]} unit */
  _around(unit) {
    return [...this._draft.slice(0, this.first - 1), ...unit, ...this._draft.slice(this.last)];
  }
}

module.exports = { Growing };
