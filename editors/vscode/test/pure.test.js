// The parts that know nothing of VS Code. Random texts come from a seed, which a failure prints.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const { Growing } = require("../src/edits/growing");
const { Hunks } = require("../src/edits/hunks");
const { difference, linesOf, merged, spliced } = require("../src/edits/lines");
const { Proposal } = require("../src/edits/proposal");
const { themed } = require("../src/theme");
const { Suggestions, extent, tidied } = require("../src/completions/suggestions");

const SEED = Number(process.env.SEED ?? Date.now() % 1_000_000);
const ROUNDS = 400;

/** A small random number generator (mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % limit;
  };
}

/** Call a property with random numbers many times; name the seed if it fails. */
function property(run) {
  for (let round = 0; round < ROUNDS; round++) {
    try {
      run(random(SEED + round));
    } catch (error) {
      error.message += ` (SEED=${SEED + round})`;
      throw error;
    }
  }
}

const someLines = (pick, most = 12) => Array.from({ length: 1 + pick(most) }, () => "abcd "[pick(5)]);

test("A difference makes one text out of another, and its splices do not touch.", () => {
  property((pick) => {
    const [before, after] = [someLines(pick), someLines(pick)];
    const splices = difference(before, after);
    assert.deepStrictEqual(spliced(before, splices), after);
    splices.slice(1).forEach((each, at) => assert.ok(each.start > splices[at].start + splices[at].count));
  });
});

test("Two changes in different places stand together; in one place they do not.", () => {
  const base = ["a", "b", "c", "d", "e"];
  assert.deepStrictEqual(merged(base, ["A", "b", "c", "d", "e"], ["a", "b", "c", "d", "E"]), ["A", "b", "c", "d", "E"]);
  assert.strictEqual(merged(base, ["a", "X", "c", "d", "e"], ["a", "Y", "c", "d", "e"]), null);
});

test("A merge keeps every line that either side added.", () => {
  property((pick) => {
    const base = Array.from({ length: 4 + pick(8) }, (_, at) => `line ${at}`);
    const [mine, theirs] = [[...base], [...base]];
    mine.splice(pick(base.length), pick(2), "mine");
    theirs.splice(pick(base.length), pick(2), "theirs");
    const both = merged(base, mine, theirs);
    if (both) assert.ok(both.includes("mine") && both.includes("theirs"));
  });
});

test("A unit that has grown to its end is exactly its new text, however it was cut into pieces.", () => {
  property((pick) => {
    const draft = someLines(pick, 20);
    const first = 1 + pick(draft.length);
    const last = first - 1 + pick(draft.length - first + 2);
    const unit = someLines(pick);
    const growing = new Growing(draft, first, last);
    let text = unit.join("\n");
    while (text) {
      const piece = text.slice(0, 1 + pick(3));
      growing.feed(piece);
      text = text.slice(piece.length);
      assert.deepStrictEqual(growing.lines.slice(0, first - 1), draft.slice(0, first - 1));
      const below = draft.slice(last);
      assert.deepStrictEqual(growing.lines.slice(growing.lines.length - below.length), below);
    }
    if (unit.at(-1) === "") unit.pop();
    assert.deepStrictEqual(growing.whole, [...draft.slice(0, first - 1), ...unit, ...draft.slice(last)]);
  });
});

test("While a unit grows, the old lines that it has not come to are still there.", () => {
  const growing = new Growing(["def f():", "    a = 1", "    b = 2", "    return a"], 1, 4);
  growing.feed("def f():\n    a = 7\n");
  assert.deepStrictEqual(growing.lines, ["def f():", "    a = 7", "    a = 1", "    b = 2", "    return a"]);
  growing.feed("    b = 2\n");
  assert.deepStrictEqual(growing.lines, ["def f():", "    a = 7", "    b = 2", "    return a"]);
});

test("A proposal keeps the units that are whole, begins one anew where it is said, and can be forgotten.", () => {
  const proposal = new Proposal("def f():\n    1\n\ndef g():\n    1\n");
  const grow = (first, last, delta, isFirst = false) =>
    proposal.grow({ first_line: first, last_line: last, delta, is_first: isFirst });
  assert.ok(grow(4, 5, "def g():\n", true));
  assert.ok(!grow(4, 5, "    2\n"));
  assert.ok(grow(1, 2, "def f():\n    3", true));
  assert.strictEqual(proposal.lines.join("\n"), "def f():\n    3\n    1\n\ndef g():\n    2\n");
  assert.ok(grow(1, 2, "def f():\n    1\n", true));
  assert.strictEqual(proposal.lines.join("\n"), "def f():\n    1\n\ndef g():\n    2\n");
  proposal.set("x = 1\n");
  assert.deepStrictEqual(proposal.lines, ["x = 1", ""]);
  proposal.restart();
  assert.strictEqual(proposal.lines, proposal.base);
});

test("Without its hunks a document is the user's own text, whatever they typed beside them.", () => {
  property((pick) => {
    const mine = Array.from({ length: 6 + pick(10) }, (_, at) => `line ${at}`);
    const now = [...mine];
    for (let count = 1 + pick(3); count; count--) now.splice(pick(now.length), pick(3), `new ${count}`);
    const hunks = new Hunks();
    hunks.set(mine, now);
    const line = pick(now.length + 1);
    const isFree = hunks.all.every(({ start, count }) => line < start || line >= start + count);
    if (!isFree) return;
    now.splice(line, 0, "typed");
    assert.strictEqual(hunks.follow({ first: line, last: line, startsLine: true, text: "typed\n" }), false);
    const own = hunks.without(now);
    assert.strictEqual(own.filter((each) => each === "typed").length, 1);
    assert.deepStrictEqual(own.filter((each) => each !== "typed"), mine);
  });
});

test("Undoing hunks one by one, in any order, gives the old text back.", () => {
  property((pick) => {
    const mine = someLines(pick, 16);
    let now = someLines(pick, 16);
    const hunks = new Hunks();
    hunks.set(mine, now);
    while (hunks.all.length) {
      const { id, start, count, old } = hunks.all[pick(hunks.all.length)];
      now = spliced(now, [{ start, count, lines: old }]);
      hunks.keep(id);
      const text = old.map((line) => `${line}\n`).join("");
      assert.strictEqual(hunks.follow({ first: start, last: start + count, startsLine: true, text }), false);
    }
    assert.deepStrictEqual(now, mine);
  });
});

test("A hunk whose old lines are back is none any more, and one that was typed over is the user's.", () => {
  const hunks = new Hunks();
  hunks.set(["a", "b", "c"], ["a", "B", "c"]);
  hunks.settle(["a", "b", "c"]);
  assert.strictEqual(hunks.all.length, 0);
  hunks.set(["a", "b", "c"], ["a", "B", "c"]);
  assert.strictEqual(hunks.follow({ first: 0, last: 2, startsLine: false, text: "" }), true);
  assert.strictEqual(hunks.all.length, 0);
});

test("Who types or takes what was suggested gets the rest of it, and no new question is needed.", () => {
  const made = new Suggestions();
  made.put({ file: "f", prefix: "x = ", suffix: "\n", text: "one + two" });
  assert.strictEqual(made.find("f", "x = on", "\n"), "e + two");
  assert.strictEqual(made.find("f", "x = one + two", "\n"), "");
  assert.strictEqual(made.find("f", "x = 7", "\n"), undefined);
  assert.strictEqual(made.find("g", "x = on", "\n"), undefined);
  assert.strictEqual(made.find("f", "x = on", ")\n"), undefined);
});

test("A block is asked for where a line begins, one line elsewhere, nothing inside of a word.", () => {
  assert.deepStrictEqual(extent("    ", "", true)?.stop, ["\n\n"]);
  assert.deepStrictEqual(extent("def f():", "", true)?.stop, ["\n\n"]);
  assert.deepStrictEqual(extent("    ", "", false)?.stop, ["\n"]);
  assert.deepStrictEqual(extent("x = ", "", true)?.stop, ["\n"]);
  assert.strictEqual(extent("pri", "nt(x)", true), null);
});

test("What stands behind the cursor anyway is not suggested once more.", () => {
  assert.strictEqual(tidied("a, b)", ")"), "a, b");
  assert.strictEqual(tidied("a, b  \n", ""), "a, b");
});

test("Lines end at any kind of line end.", () => {
  assert.deepStrictEqual(linesOf("a\r\nb\nc"), ["a", "b", "c"]);
});

test("The app's dark and light colours are found in its style sheet.", () => {
  const file = path.join(__dirname, "../../../src/vivace/web/static/app/app.css");
  const rules = themed(fs.readFileSync(file, "utf-8")).split("\n");
  assert.strictEqual(rules.length, 3);
  for (const rule of rules) assert.match(rule, /--panel:.*--red:/);
  assert.notStrictEqual(rules[0].split("{")[1], rules[1].split("{")[1]);
});
