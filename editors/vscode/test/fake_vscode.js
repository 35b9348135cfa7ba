// As much of VS Code as an edit and the box for its instruction use, for tests in which the order of things matters.
//
// A change of the document waits until the test lets it through, and is refused if the document changed meanwhile, as VS
// Code does it. `require("./fake_vscode")` before anything of the extension's.
"use strict";

const Module = require("node:module");

/** Let everything run that can run now. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

class Position {
  constructor(line, character) {
    Object.assign(this, { line, character });
  }
}

class Range {
  constructor(...args) {
    const [start, end] = args.length === 4 ? [new Position(args[0], args[1]), new Position(args[2], args[3])] : args;
    Object.assign(this, { start, end });
  }
}

const listeners = new Set();
/** @type {any[]} */
const visibleTextEditors = [];
const nothing = () => ({ dispose() {} });
const vscode = {
  Position,
  Range,
  EndOfLine: { LF: 1, CRLF: 2 },
  TextDocumentChangeReason: { Undo: 1, Redo: 2 },
  Uri: { joinPath: (uri) => uri },
  workspace: {
    onDidChangeTextDocument: (listener) => (listeners.add(listener), { dispose: () => listeners.delete(listener) }),
    onDidCloseTextDocument: nothing,
    getWorkspaceFolder: () => undefined,
  },
  window: { visibleTextEditors, onDidChangeVisibleTextEditors: nothing, createInputBox: () => new FakeBox() },
};
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));

/** An editor that shows one document. `isHeld`: changes wait for `release`. */
class FakeEditor {
  constructor(text) {
    this.text = text;
    this.version = 0;
    this.isHeld = false;
    this.waiting = [];
    this.document = { uri: { fsPath: "/w/a.py", path: "/w/a.py", scheme: "file" }, eol: 1, getText: () => this.text };
    visibleTextEditors.splice(0, visibleTextEditors.length, this);
  }

  async edit(build) {
    const { version } = this;
    const replaced = [];
    build({ replace: (range, text) => replaced.push({ range, text }) });
    if (this.isHeld) await new Promise((resolve) => this.waiting.push(resolve));
    if (version !== this.version) return false;
    this.#change(replaced);
    return true;
  }

  /** Type a text at a place, as the user does. */
  type(line, character, text) {
    const at = new Position(line, character);
    this.#change([{ range: new Range(at, at), text }]);
  }

  release() {
    this.isHeld = false;
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  #change(replaced) {
    const offset = ({ line, character }) => this.text.split("\n").slice(0, line).join("\n").length + (line ? 1 : 0) + character;
    for (const { range, text } of [...replaced].reverse()) {
      this.text = this.text.slice(0, offset(range.start)) + text + this.text.slice(offset(range.end));
    }
    this.version += 1;
    for (const listener of [...listeners]) listener({ document: this.document, contentChanges: replaced });
  }
}

class FakeBox {
  value = "";
  show() {
    FakeBox.last = this;
  }
  hide() {} // that it is hidden is told later, from another process
  dispose() {}
  onDidChangeValue(listener) {
    this.changed = listener;
  }
  onDidAccept(listener) {
    this.accepted = listener;
  }
  onDidHide(listener) {
    this.hidden = listener;
  }
}

/** A host that answers as it is told, and remembers what it was asked. */
class FakeFace {
  constructor() {
    this.requests = [];
    this.refused = new Map(); // operation → error
  }
  async request(operation, request) {
    this.requests.push({ do: operation, ...request });
    if (this.refused.has(operation)) throw this.refused.get(operation);
    return { edit: "e1" };
  }
  requestIn(_folder, operation, request) {
    return this.request(operation, request);
  }
  listen(_edit, listener) {
    this.tell = listener;
  }
  leave() {}
  asked(operation) {
    return this.requests.filter((each) => each.do === operation);
  }
}

module.exports = { FakeBox, FakeEditor, FakeFace, settled };
