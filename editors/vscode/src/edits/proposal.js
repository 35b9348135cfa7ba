// What the host has made of a file so far: unit by unit while it writes, then as a whole.
//
// Owns which units are whole. Pure: knows nothing of VS Code, nor of what the user has typed meanwhile.
"use strict";

const { Growing } = require("./growing");
const { linesOf } = require("./lines");

class Proposal {
  /** @param {string} text of the file, as the host edits it */
  constructor(text) {
    this.base = linesOf(text);
    /** @type {readonly string[]} the file as it is proposed now */
    this.lines = this.base;
    /** @type {readonly string[]} the file with the units that are whole */
    this._draft = this.base;
    /** @type {Growing | null} */
    this._growing = null;
  }

  /**
   * Take more of a unit's new text. Return whether a unit has begun, or began anew.
   * @param {{ first_line: number, last_line: number, delta: string, is_first?: boolean }} event
   */
  grow({ first_line: first, last_line: last, delta, is_first: isFirst }) {
    const before = this._growing;
    const isSame = before !== null && before.first === first && before.last === last;
    if (before && !isSame) this._draft = before.whole;
    const growing = isSame && !isFirst ? before : new Growing(this._draft, first, last);
    growing.feed(delta);
    this._growing = growing;
    this.lines = growing.lines;
    return growing !== before;
  }

  /** Take the whole file. @param {string} text */
  set(text) {
    this.lines = linesOf(text);
  }

  /** Forget what was written. */
  restart() {
    this.lines = this._draft = this.base;
    this._growing = null;
  }
}

module.exports = { Proposal };
