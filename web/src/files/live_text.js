// A file while one of its units is being written: the new lines so far, then the old lines that the new text has not reached.
// Owns the alignment, one row of dynamic programming for each new line, as the terminal's live diff has it. Pure.

const WEAK = 2; // what a match of such a line is worth, in skipped lines
const PLAIN = 4;
const UNIQUE = 16;
const SIMILAR = 1; // a line that was changed takes the place of the old one

export class LiveText {
  #old; // the file's lines
  #first; // index of the unit's first line
  #unit; // the unit's old lines
  #gains;
  #scores;
  #read = 0; // lines of the new text that are aligned
  #reached = 0;
  #last = { newText: null, grown: null }; // asked for several times a frame

  /** `text` is the file as it was; lines count from 1, and `lastLine` is one less than `firstLine` for a new unit. */
  constructor(text, firstLine, lastLine) {
    this.original = text;
    this.#old = text.split("\n");
    this.#first = firstLine - 1;
    this.#unit = this.#old.slice(this.#first, lastLine);
    this.#gains = gains(this.#unit);
    this.#scores = this.#unit.map((_, n) => -n).concat(-this.#unit.length);
  }

  /** Return the whole file with the unit's new text so far, and the line where it ends. */
  at(newText) {
    if (this.#last.newText !== newText) this.#last = { newText, grown: this.#grow(newText) };
    return this.#last.grown;
  }

  #grow(newText) {
    const lines = newText.split("\n");
    const partial = lines.pop();
    for (const line of lines.slice(this.#read)) this.#align(line);
    this.#read = lines.length;
    const written = partial ? [...lines, partial] : lines;
    const next = this.#unit[this.#reached];
    const isReplacing = partial && next !== undefined && (next.startsWith(partial) || isSimilar(next, partial));
    const rest = this.#unit.slice(this.#reached + (isReplacing ? 1 : 0));
    const all = [...this.#old.slice(0, this.#first), ...written, ...rest, ...this.#old.slice(this.#first + this.#unit.length)];
    return { text: all.join("\n"), line: this.#first + written.length };
  }

  /** Extend the alignment by one new line: it matches an old line, changes one, or is added; old lines before it may be deleted. */
  #align(line) {
    const next = [this.#scores[0] - 1];
    for (let j = 1; j <= this.#unit.length; j += 1) {
      const matched = this.#unit[j - 1] === line ? this.#scores[j - 1] + this.#gains[j - 1] : isSimilar(this.#unit[j - 1], line) ? this.#scores[j - 1] + SIMILAR : -Infinity;
      next.push(Math.max(matched, this.#scores[j] - 1, next[j - 1] - 1));
    }
    this.#scores = next;
    this.#reached = next.indexOf(Math.max(...next));
  }
}

/** Return whether half of the longer line stands at the beginning and the end of both. */
function isSimilar(one, other) {
  const most = Math.min(one.length, other.length);
  let before = 0;
  while (before < most && one[before] === other[before]) before += 1;
  let behind = 0;
  while (behind < most - before && one[one.length - 1 - behind] === other[other.length - 1 - behind]) behind += 1;
  return one.trim() !== "" && before + behind >= Math.max(one.length, other.length) / 2;
}

function gains(lines) {
  const times = new Map();
  for (const line of lines) times.set(line, (times.get(line) ?? 0) + 1);
  return lines.map((line) => (line.trim().length < 2 ? WEAK : times.get(line) === 1 ? UNIQUE : PLAIN));
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
