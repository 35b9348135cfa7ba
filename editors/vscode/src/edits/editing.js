// One edit of one document: what the model writes appears in the editor while it is written.
//
// Owns the edit from the instruction to the last hunk that is kept or undone. Everything goes into the editor's
// buffer, in batches and as one step of undo; nothing is saved. What the user types meanwhile stays: beside the edit
// both stand together, inside of it the edit stops writing and is offered for comparison. Does not own what is proposed
// (`proposal`) nor the way to the host (`hosted`).
"use strict";

const vscode = require("vscode");
const { DocumentLines, changeOf, lineChange, placed, realPath } = require("./document_lines");
const { Hosted } = require("./hosted");
const { Hunks } = require("./hunks");
const { folderOf } = require("./instruction");
const { merged, spliced } = require("./lines");
const { Proposal } = require("./proposal");

const BATCH_MS = 70;

/**
 * @typedef {"writing" | "reviewing" | "over"} State
 * @typedef {{ changed: (edit: Editing) => void, failed: (edit: Editing, message: string) => void,
 *   told: (message: string) => void, conflicted: (edit: Editing) => void, measured: (measured: import("../status").Measured) => void }} Listener
 */

class Editing {
  /** @param {import("../server/face").Face} face @param {vscode.TextEditor} editor @param {string} instruction @param {Listener} listener */
  constructor(face, editor, instruction, listener) {
    this._host = new Hosted(face, (event) => this._happened(event));
    this._listener = listener;
    this.document = editor.document;
    this.said = [instruction]; // and what turned it around
    /** @type {import("./instruction").Asked} */
    this._scope = { line: 1 };
    this._starting = Promise.resolve();
    /** @type {Promise<void> | undefined} */
    this._failing = undefined;
    /** @type {State} */
    this.state = "writing";
    this.unit = "";
    this.activity = ""; // what it waits for before it is written, such as a download
    this.hunks = new Hunks();
    this.original = this.document.getText();
    this._lines = new DocumentLines(this.document);
    this._path = realPath(this.document.uri.fsPath);
    this._proposal = new Proposal(this.original);
    this._question = "";
    this._isSet = false; // the proposal is whole
    this._isStopped = false; // by the user's own change: nothing more is written into the buffer
    this.wasCompared = false;
    this._flushing = Promise.resolve();
    /** @type {NodeJS.Timeout | null} */
    this._timer = null;
    this._disposables = [
      vscode.workspace.onDidChangeTextDocument((event) => event.document === this.document && this._changed(event)),
      vscode.workspace.onDidCloseTextDocument((document) => document === this.document && this._end()),
      vscode.window.onDidChangeVisibleTextEditors(() => this._plan()),
    ];
  }

  /** Begin. @param {import("./instruction").Asked} asked what may change */
  start(asked) {
    this._scope = asked;
    this._starting = this._start();
    return this._starting;
  }

  async _start() {
    await this._host.start(folderOf(this.document), {
      path: this.document.uri.fsPath,
      text: this.original,
      instruction: this.said[0],
      ...this._scope,
      apply: "face",
    });
    if (this.state === "over") await this._host.tell("edit.stop"); // it was left before it had a name
  }

  /** Turn the edit around. Return whether it was in time: what is whole or has failed cannot be turned. @param {string} text */
  async steer(text) {
    await this._starting;
    if (this.state !== "writing") return false;
    this._isSet = false;
    const isTurned = await this._host.steer(text);
    if (isTurned) this.said.push(text);
    else await this._failing; // until the buffer is as it was
    return isTurned;
  }

  /** Return what an instruction that came too late begins: an edit of the same place. @param {string} text */
  after(text) {
    const [first] = this.hunks.all;
    if (first) return { instruction: text, asked: { line: first.start + 1 } };
    return { instruction: [...this.said, text].join("\n"), asked: this._scope };
  }

  /** What was said last. */
  get instruction() {
    return this.said[this.said.length - 1];
  }

  /** Stop writing, and take back what is there. */
  async stop() {
    if (this.state !== "writing") return;
    void this._host.tell("edit.stop");
    await this._takeBack();
    if (this.state === "writing") this._end();
  }

  /** Keep one hunk as it is. @param {number} id */
  async keep(id) {
    this.hunks.keep(id);
    await this._reviewed();
  }

  /** Put the old lines of one hunk back. @param {number} id */
  async undo(id) {
    const hunk = this.hunks.find(id);
    if (!hunk) return;
    const now = this._lines.now;
    const splice = { start: hunk.start, count: hunk.count, lines: hunk.old };
    if (!(await this._lines.apply(now, spliced(now, [splice]), { before: true, after: true }))) return;
    this.hunks.keep(id);
    this.hunks.follow(lineChange(splice));
    await this._reviewed();
  }

  async keepAll() {
    this.hunks.all = [];
    await this._reviewed();
  }

  async undoAll() {
    const now = this._lines.now;
    if (!(await this._lines.apply(now, this.hunks.without(now), { before: true, after: true }))) return;
    this.hunks.all = [];
    await this._reviewed();
  }

  /** The file as the edit would make it, for a comparison. */
  get proposed() {
    return this._proposal.lines.join("\n");
  }

  /** How many lines the edit has changed. */
  get changedLines() {
    return this.hunks.all.reduce((sum, { count, old }) => sum + Math.max(count, old.length), 0);
  }

  get isConflicted() {
    return this._isStopped;
  }

  dispose() {
    if (this._timer) clearTimeout(this._timer);
    for (const each of this._disposables) each.dispose();
    this._host.leave();
  }

  // ---- what the host tells

  /** @param {any} event */
  _happened(event) {
    switch (event.type) {
      case "live.diff":
        return this._grew(event);
      case "live.activity":
        this.activity = event.activity ?? "";
        return this._listener.changed(this);
      case "attempt.abandoned":
        this._proposal.restart();
        this._isSet = false;
        return this._plan();
      case "question":
        return this._asked(event);
      case "edit.accepted":
        return this._accepted(event.files);
      case "turn.times":
        return this._measured(event);
      case "error":
        return this._fail(event.message);
      case "edit.lost":
        return this.state === "writing" && this._fail(event.message);
      case "edit.ended":
        return this._ended(event.status);
    }
  }

  /** @param {{ unit: string, first_line: number, last_line: number, delta: string, is_first?: boolean }} event */
  _grew(event) {
    if (this._proposal.grow(event)) {
      this.unit = event.unit;
      this._listener.changed(this);
    }
    this._plan();
  }

  /** @param {{ question: string, kind: string, files: { path: string, new_text: string }[], missing?: string[] }} event */
  _asked({ question, kind, files, missing = [] }) {
    if (kind !== "edit") return this._host.tell("edit.resolve", { question, choice: "edit" });
    this._question = question;
    const own = files.find(({ path }) => this._isOwn(path));
    if (own) this._proposal.set(own.new_text);
    if (missing.length) this._listener.told(`A part of the edit failed: ${missing.join("; ")}`);
    this._isSet = true;
    if (this._isStopped) return this._host.tell("edit.decide", { question, decision: "reject" });
    this._plan(0);
  }

  /** Put what goes into other files in place; this document has its part already. @param {{ path: string, text: string }[]} files */
  async _accepted(files) {
    let problem = "";
    for (const { path, text } of files) {
      if (this._isOwn(path)) continue;
      if (await placed(path, text)) this._listener.told(`The edit has also changed ${path}.`);
      else problem = `${path} could not be changed`;
    }
    await this._host.tell("edit.written", { problem });
  }

  /** Whether the host means this document; it follows links. @param {string} path */
  _isOwn(path) {
    return path === this._path || path === this.document.uri.fsPath;
  }

  /** @param {any} event */
  _measured(event) {
    const last = event.turns?.at(-1);
    const waterfall = last?.waterfall ?? last ?? event;
    this._listener.measured({ tokens: waterfall.output_tokens ?? 0, waterfall });
  }

  /** Take everything back, and say why, once. @param {string} message */
  _fail(message) {
    if (this.state === "writing") this._failing ??= this._giveUp(message);
    return this._failing;
  }

  /** @param {string} message */
  async _giveUp(message) {
    await this._takeBack();
    if (this.state !== "writing") return; // the user has typed into it, which was said
    this._listener.failed(this, message);
    this._end();
  }

  /** @param {string} status */
  async _ended(status) {
    if (this.state === "writing" && !this._isSet) {
      const why = status === "nothing_to_change" ? "The model changed nothing." : "The edit ended without a change.";
      await this._fail(why);
    }
  }

  // ---- what is put into the buffer

  /** Put what has come into the buffer soon. @param {number} [ms] */
  _plan(ms = BATCH_MS) {
    if (this.state !== "writing" || this._isStopped || (this._timer && ms)) return;
    if (this._timer) clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._timer = null;
      this._flushing = this._flushing.then(() => this._flush()).catch((error) => void this._fail(String(error))); // which waits for this
    }, ms);
  }

  async _flush() {
    if (this.state !== "writing" || this._isStopped) return;
    const isLast = this._isSet;
    const now = this._lines.now;
    const mine = this.hunks.without(now);
    const wanted = merged(this._proposal.base, mine, this._proposal.lines);
    if (!wanted) return this._conflict();
    const isDone = await this._lines.apply(now, wanted, { before: !this._lines.hasUndoStop, after: isLast });
    if (!isDone) return this._plan(); // the user typed meanwhile, or the editor is not to be seen
    this.hunks.set(mine, wanted);
    if (isLast && this._isSet) await this._settle(); // unless it was turned around meanwhile
    this._listener.changed(this);
  }

  /** Take out of the buffer what was put there, also if the user types meanwhile; but not if they type into it. */
  async _takeBack() {
    if (this._timer) clearTimeout(this._timer);
    this._timer = null;
    const wasWriting = this._flushing;
    this._isStopped = true;
    await wasWriting;
    while (this.state === "writing" && this.hunks.all.length) {
      const now = this._lines.now;
      if (await this._lines.apply(now, this.hunks.without(now), { before: false, after: true })) this.hunks.all = [];
    }
  }

  // ---- what the user does

  /** @param {vscode.TextDocumentChangeEvent} event */
  _changed(event) {
    if (this.state === "over" || !event.contentChanges.length) return;
    if (this._lines.isOwnChange) return;
    const touched = event.contentChanges.map((change) => this.hunks.follow(changeOf(change))).some(Boolean);
    if (this.state === "writing") {
      if (event.reason === vscode.TextDocumentChangeReason.Undo && touched) {
        this.hunks.all = [];
        this._isStopped = true;
        return this._end();
      }
      if (touched) return this._conflict();
      return;
    }
    this.hunks.settle(this._lines.now);
    if (touched) this._reviewed();
    this._listener.changed(this);
  }

  /** The user typed where the edit writes: their text stays, and the edit is offered beside it. */
  _conflict() {
    if (this.state !== "writing") return;
    this._isStopped = true;
    this.state = "reviewing";
    this._listener.changed(this);
    this._listener.conflicted(this);
  }

  /** The whole edit is in the buffer. For the host it is over; what is kept of it is decided here. */
  async _settle() {
    if (!this.hunks.all.length) return void this._fail("The model changed nothing.");
    this.state = "reviewing";
    await this._host.tell("edit.decide", { question: this._question, decision: "accept" });
  }

  async _reviewed() {
    this._listener.changed(this);
    if (!this.hunks.all.length && this.state === "reviewing") this._end();
  }

  _end() {
    if (this.state === "over") return;
    this.state = "over";
    this.activity = "";
    if (!this._isSet) void this._host.tell("edit.stop");
    this.hunks.all = [];
    this._listener.changed(this);
    this.dispose();
  }
}

module.exports = { Editing };
