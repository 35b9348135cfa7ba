// Texts as lines: what differs between two of them, and how a change of ours and one of the user's fit together.
//
// Owns the comparison. Pure: knows nothing of VS Code.
"use strict";

const MAX_CELLS = 4_000_000; // of the table; larger differences are one hunk

/**
 * @typedef {{ start: number, count: number, lines: string[] }} Splice `count` lines from `start` (from 0) become `lines`
 */

/**
 * Return the splices that make `after` out of `before`, in order, none touching another.
 * @param {readonly string[]} before @param {readonly string[]} after @returns {Splice[]}
 */
function difference(before, after) {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < most - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  const old = before.slice(head, before.length - tail);
  const now = after.slice(head, after.length - tail);
  if (!old.length && !now.length) return [];
  if (!old.length || !now.length || old.length * now.length > MAX_CELLS) {
    return [{ start: head, count: old.length, lines: now }];
  }
  return aligned(old, now).map((each) => ({ ...each, start: each.start + head }));
}

/** Align by the longest common subsequence. @param {string[]} old @param {string[]} now @returns {Splice[]} */
function aligned(old, now) {
  const width = now.length + 1;
  const common = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      const here = i * width + j;
      common[here] =
        old[i] === now[j] ? common[here + width + 1] + 1 : Math.max(common[here + width], common[here + 1]);
    }
  }
  /** @type {Splice[]} */
  const splices = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      i++;
      j++;
      continue;
    }
    const splice = { start: i, count: 0, lines: /** @type {string[]} */ ([]) };
    while (i < old.length || j < now.length) {
      const here = i * width + j;
      if (i < old.length && j < now.length && old[i] === now[j]) break;
      const takesNew = j < now.length && (i === old.length || common[here + 1] > common[here + width]);
      if (takesNew) splice.lines.push(now[j++]);
      else {
        splice.count++;
        i++;
      }
    }
    splices.push(splice);
  }
  return splices;
}

/** Return the lines with the splices in them. @param {readonly string[]} lines @param {Splice[]} splices */
function spliced(lines, splices) {
  /** @type {string[]} */
  const result = [];
  let at = 0;
  for (const { start, count, lines: added } of splices) {
    for (; at < start; at++) result.push(lines[at]);
    for (const line of added) result.push(line);
    at = start + count;
  }
  for (; at < lines.length; at++) result.push(lines[at]);
  return result;
}

/**
 * Return `mine` and `theirs` in one, both made out of `base`, or null if both changed the same place.
 * @param {readonly string[]} base @param {readonly string[]} mine @param {readonly string[]} theirs
 * @returns {string[] | null}
 */
function merged(base, mine, theirs) {
  const ours = difference(base, mine);
  const others = difference(base, theirs);
  for (const one of ours) {
    for (const other of others) {
      if (one.start <= other.start + other.count && other.start <= one.start + one.count) return null;
    }
  }
  return spliced(base, [...ours, ...others].sort((a, b) => a.start - b.start));
}

/** Split a text at its line ends. @param {string} text */
function linesOf(text) {
  return text.split(/\r\n|\r|\n/);
}

module.exports = { difference, spliced, merged, linesOf };
