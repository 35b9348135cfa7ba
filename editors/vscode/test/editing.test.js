// An edit in an editor where a message, a key and a change meet: in every order the user's words and text are kept.
"use strict";

const assert = require("node:assert");
const { afterEach, beforeEach, mock, test } = require("node:test");
const { FakeBox, FakeEditor, FakeFace, settled } = require("./fake_vscode");
const { Editing } = require("../src/edits/editing");
const { askInstruction } = require("../src/edits/instruction");
const { FaceError } = require("../src/server/face");

const BEFORE = "def f():\n    return 1\n\n\nX = 1\n";
const FIRST = BEFORE.replace("return 1", "return 2");
const SECOND = BEFORE.replace("return 1", "return 3");

let face, editor, edit, said;
beforeEach(async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  face = new FakeFace();
  editor = new FakeEditor(BEFORE);
  said = [];
  edit = new Editing(face, editor, "two", {
    changed: () => {},
    failed: (_, message) => said.push(message),
    told: (message) => said.push(message),
    conflicted: () => said.push("conflict"),
    measured: () => {},
  });
  await edit.start({ line: 2 });
});
afterEach(() => mock.timers.reset());

/** Tell that the model wrote this much of the function, and put it into the editor. */
async function grow(text) {
  face.tell({ type: "live.diff", path: "/w/a.py", unit: "f", first_line: 1, last_line: 2, delta: text, is_first: true });
  await batch();
}

function ask(question, text) {
  face.tell({ type: "question", question, kind: "edit", files: [{ path: "/w/a.py", new_text: text }] });
}

async function batch() {
  mock.timers.tick(100);
  await settled();
}

test("a steer that meets the whole edit turns it around", async () => {
  editor.isHeld = true;
  ask("q1", FIRST);
  await batch();
  assert.equal(await edit.steer("three"), true);
  editor.release();
  await settled();
  assert.deepEqual(face.asked("edit.decide"), []);
  face.tell({ type: "attempt.abandoned", why: "steered", steer: "three" });
  ask("q2", SECOND);
  await batch();
  await batch();
  assert.equal(editor.text, SECOND);
  assert.deepEqual(face.asked("edit.decide").map(({ question }) => question), ["q2"]);
});

test("a steer that comes after the end begins again at the same place, with all that was said", async () => {
  await grow("def f():\n    x = 1\n    y = 1\n    z = 1\n");
  editor.isHeld = true;
  face.tell({ type: "error", message: "It did not end." });
  face.tell({ type: "edit.ended", status: "failed" });
  face.refused.set("edit.steer", new FaceError({ code: "gone", message: "The edit is over." }));
  const steered = edit.steer("three");
  await settled();
  editor.release();
  assert.equal(await steered, false);
  assert.equal(editor.text, BEFORE);
  assert.deepEqual(said, ["It did not end."]);
  assert.deepEqual(edit.after("three"), { instruction: "two\nthree", asked: { line: 2 } });
});

test("an instruction after an edit that is whole goes to what it changed", async () => {
  ask("q1", FIRST);
  await batch();
  assert.equal(await edit.steer("three"), false);
  assert.deepEqual(edit.after("three"), { instruction: "three", asked: { line: 2 } });
});

test("a steer waits until the edit has begun", async () => {
  const other = new Editing(face, editor, "two", { changed: () => {}, failed: () => {}, told: () => {}, conflicted: () => {}, measured: () => {} });
  const started = other.start({ line: 2 });
  assert.equal(await other.steer("three"), true);
  await started;
  assert.equal(face.asked("edit.steer")[0].edit, "e1");
});

test("an edit that fails is taken back although the user types beside it", async () => {
  await grow("def f():\n    x = 1\n");
  editor.isHeld = true;
  face.tell({ type: "error", message: "It did not end." });
  await settled();
  editor.type(editor.text.split("\n").length - 1, 0, "Y = 2");
  editor.release();
  await settled();
  assert.equal(editor.text, `${BEFORE}Y = 2`);
  assert.deepEqual(said, ["It did not end."]);
});

test("what the user types into an edit that fails stays, and that is said", async () => {
  await grow("def f():\n    x = 1\n");
  editor.isHeld = true;
  face.tell({ type: "error", message: "It did not end." });
  await settled();
  editor.type(1, 0, "# mine");
  editor.release();
  await settled();
  assert.match(editor.text, /# mine/);
  assert.deepEqual(said, ["conflict"]);
});

test("what an edit waits for is known until it waits no more, or is over", async () => {
  face.tell({ type: "live.activity", activity: "loading m: 1 of 2 GB" });
  assert.equal(edit.activity, "loading m: 1 of 2 GB");
  face.tell({ type: "live.activity" });
  assert.equal(edit.activity, "");
  face.tell({ type: "live.activity", activity: "loading m: 1 of 2 GB" });
  await edit.stop();
  assert.equal(edit.activity, "");
});

test("an edit that changes nothing ends, and is said to", async () => {
  ask("q1", BEFORE);
  await batch();
  await settled();
  assert.equal(edit.state, "over");
  assert.deepEqual(said, ["The model changed nothing."]);
});

test("nothing is read ahead any more when the instruction is given", async () => {
  const answer = askInstruction(face, editor.document, { asked: { line: 2 }, words: "" });
  FakeBox.last.value = "two";
  FakeBox.last.changed();
  FakeBox.last.accepted();
  assert.equal(await answer, "two");
  const before = face.asked("edit.prefill").length;
  mock.timers.tick(1000);
  assert.equal(face.asked("edit.prefill").length, before);
});
