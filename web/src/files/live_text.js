// A file while one of its units is being written: the new lines so far, then the old lines that the new text has not reached.
// Owns the alignment, some old lines for each new line, as the terminal's live diff has it; and what changes from one
// frame to the next, so that a frame costs what is new in it and not the length of the file. Pure.

const WEAK = 2; // what a match of such a line is worth, in skipped lines
const PLAIN = 4;
const UNIQUE = 16;
const SIMILAR = 1; // a line that was changed takes the place of the old one
const BACK = 32; // old lines that a new one is compared with, before and behind where the text has come to
const AHEAD = 128;

export class LiveText {
  #old; // the file's lines
  #first; // index of the unit's first line
  #unit; // the unit's old lines
  #gains;
  #from = 0; // the old line that the first score is for
  #scores; // for each old line: how well the new text ends before it
  #read = 0; // characters of the new text that are aligned
  #written = []; // whole new lines
  #partial = ""; // and what there is of the next
  #reached = 0; // old lines that the new text stands for

  /** `text` is the file as it was; lines count from 1, and `lastLine` is one less than `firstLine` for a new unit. */
  constructor(text, firstLine, lastLine) {
    this.original = text;
    this.#old = text.split("\n");
    this.#first = firstLine - 1;
    this.#unit = this.#old.slice(this.#first, lastLine);
    this.#gains = gains(this.#unit);
    this.#scores = this.#unit.slice(0, AHEAD).map((_, n) => -n).concat(-Math.min(AHEAD, this.#unit.length));
  }

  /** Take the unit's new text so far, which only grows, or `most` characters more of it. Return whether that is all. */
  grow(newText, most = Infinity) {
    const end = Math.min(newText.length, this.#read + this.#partial.length + most);
    const lines = newText.slice(this.#read, end).split("\n");
    this.#partial = lines.pop();
    this.#read = end - this.#partial.length;
    for (const line of lines) this.#align(line);
    this.#written.push(...lines);
    return end === newText.length;
  }

  /** Where the file stands: how many characters and whole lines are written, whether there is a part of one, and which old line follows. */
  get state() {
    const next = this.#unit[this.#reached];
    const isReplacing = this.#partial && next !== undefined && (next.startsWith(this.#partial) || isSimilar(next, this.#partial));
    const length = this.#read + this.#partial.length;
    return { length, whole: this.#written.length, partial: this.#partial ? 1 : 0, rest: this.#reached + (isReplacing ? 1 : 0) };
  }

  /** The line of the file that is being written, from 1. */
  get line() {
    return this.#first + this.#written.length + (this.#partial ? 1 : 0);
  }

  /** Return the whole file as it stands. */
  get text() {
    const { rest } = this.state;
    return [...this.#old.slice(0, this.#first), ...this.#linesFrom(0), ...this.#unit.slice(rest), ...this.#old.slice(this.#first + this.#unit.length)].join("\n");
  }

  /** Return what leads from an earlier state to this one: lines `from` to `to` of the file, from 0, are replaced by `lines`. */
  changeSince(before) {
    const { rest } = this.state;
    const from = this.#first + before.whole;
    const to = from + before.partial + Math.max(0, rest - before.rest);
    return { from, to, lines: [...this.#linesFrom(before.whole), ...this.#unit.slice(rest, before.rest)] };
  }

  #linesFrom(number) {
    return this.#partial ? [...this.#written.slice(number), this.#partial] : this.#written.slice(number);
  }

  /** Extend the alignment by one new line: it matches an old line, changes one, or is added; old lines before it may be deleted. */
  #align(line) {
    const from = Math.max(0, this.#reached - BACK);
    const to = Math.min(this.#unit.length, this.#reached + AHEAD);
    const next = [this.#score(from) - 1];
    let best = 0;
    for (let j = from + 1; j <= to; j += 1) {
      const matched = this.#score(j - 1) + this.#gain(j - 1, line);
      next.push(Math.max(matched, this.#score(j) - 1, next[j - from - 1] - 1));
      if (next[j - from] > next[best]) best = j - from;
    }
    this.#from = from;
    this.#scores = next;
    this.#reached = from + best;
  }

  /** Old lines behind those that have a score would be deleted one by one. */
  #score(j) {
    const at = j - this.#from;
    const last = this.#scores.length - 1;
    if (at < 0) return -Infinity;
    return at <= last ? this.#scores[at] : this.#scores[last] - (at - last);
  }

  #gain(j, line) {
    if (this.#unit[j] === line) return this.#gains[j];
    return isSimilar(this.#unit[j], line) ? SIMILAR : -Infinity;
  }
}

/** Return whether half of the longer line stands at the beginning and the end of both. */
function isSimilar(one, other) {
  const most = Math.min(one.length, other.length);
  const needed = Math.max(one.length, other.length) / 2;
  if (most < needed || one.trim() === "") return false;
  let before = 0;
  while (before < most && one.charCodeAt(before) === other.charCodeAt(before)) before += 1;
  let behind = 0;
  while (behind < most - before && one.charCodeAt(one.length - 1 - behind) === other.charCodeAt(other.length - 1 - behind)) behind += 1;
  return before + behind >= needed;
}

function gains(lines) {
  const times = new Map();
  for (const line of lines) times.set(line, (times.get(line) ?? 0) + 1);
  return lines.map((line) => (line.trim().length < 2 ? WEAK : times.get(line) === 1 ? UNIQUE : PLAIN));
}

/** Return CodeMirror's change for lines `from` to `to` of a document, counted from 0, that are replaced by others. */
export function changeOf(doc, { from, to, lines }) {
  const start = (line) => doc.line(line + 1).from;
  if (to < doc.lines) return { from: start(from), to: start(to), insert: lines.map((line) => `${line}\n`).join("") };
  if (from < doc.lines && lines.length) return { from: start(from), to: doc.length, insert: lines.join("\n") };
  const end = from >= doc.lines ? doc.length : from > 0 ? start(from) - 1 : 0; // nothing is left behind it
  return { from: end, to: doc.length, insert: lines.map((line) => `\n${line}`).join("") };
}

/**
 * Return both sides of what is left to decide: `original` has the hunks that are kept, `text` those that are not undone, and
 * `ranges` says which lines of `text` belong to which open hunk.
 */
export function undecided(oldText, hunks, marks) {
  const original = oldText.split("\n");
  const text = [...original];
  const ranges = [];
  let moved = 0;
  let movedOriginal = 0;
  for (const hunk of [...hunks].sort((one, other) => one.old_first - other.old_first)) {
    const mark = marks.get(hunk.hunk);
    if (mark === "undo") continue;
    const lines = hunk.rows.filter(([tag]) => tag !== "-").map(([, line]) => line);
    const at = hunk.old_first - 1;
    text.splice(at + moved, hunk.old_count, ...lines);
    if (mark === "keep") {
      original.splice(at + movedOriginal, hunk.old_count, ...lines);
      movedOriginal += lines.length - hunk.old_count;
    } else {
      ranges.push({ hunk: hunk.hunk, first: at + moved + 1, last: at + moved + Math.max(1, lines.length) });
    }
    moved += lines.length - hunk.old_count;
  }
  return { original: original.join("\n"), text: text.join("\n"), ranges };
}
