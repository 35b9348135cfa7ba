// A document of the editor's as lines that we change: a batch at a time, and never what we do not know.
//
// Owns how a change of lines becomes a change of VS Code's, and which changes are our own. Does not own what is written
// (`editing`).
"use strict";

const fs = require("node:fs");
const vscode = require("vscode");
const { difference, linesOf } = require("./lines");

class DocumentLines {
  /** @param {vscode.TextDocument} document */
  constructor(document) {
    this._document = document;
    this.hasUndoStop = false; // before our first change
    /** @type {string | null} the text that our own change leads to */
    this._expected = null;
  }

  /** The lines as they are now. */
  get now() {
    return linesOf(this._document.getText());
  }

  /** Whether a change that is just told is ours. */
  get isOwnChange() {
    return this._expected !== null && this._document.getText() === this._expected;
  }

  /**
   * Change the document, if it is as we know it. Return whether that was done.
   * @param {string[]} now @param {string[]} wanted @param {{ before: boolean, after: boolean }} undoStops
   */
  async apply(now, wanted, { before, after }) {
    const splices = difference(now, wanted);
    if (!splices.length) return true;
    const editor = vscode.window.visibleTextEditors.find(({ document }) => document === this._document);
    const edits = splices.map((splice) => replacement(now, splice));
    const eol = this._document.eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n";
    this._expected = wanted.join(eol);
    try {
      if (editor) {
        const options = { undoStopBefore: before, undoStopAfter: after };
        const isDone = await editor.edit((builder) => {
          for (const { range, text } of edits) builder.replace(range, text.join(eol));
        }, options);
        this.hasUndoStop ||= isDone;
        return isDone;
      }
      if (!after) return false; // wait until it is seen again, or whole
      const change = new vscode.WorkspaceEdit();
      for (const { range, text } of edits) change.replace(this._document.uri, range, text.join(eol));
      return await vscode.workspace.applyEdit(change);
    } finally {
      this._expected = null;
    }
  }
}

/**
 * Return what to replace in the document for a splice of its lines: whole lines with their ends, or at the end of
 * the document the end of the line before.
 * @param {string[]} now @param {import("./lines").Splice} splice
 */
function replacement(now, { start, count, lines }) {
  const end = start + count;
  if (end < now.length) return { range: new vscode.Range(start, 0, end, 0), text: [...lines, ""] };
  const last = new vscode.Position(now.length - 1, now[now.length - 1].length);
  if (start === 0) return { range: new vscode.Range(new vscode.Position(0, 0), last), text: lines };
  const from = new vscode.Position(start - 1, now[start - 1].length);
  return { range: new vscode.Range(from, last), text: ["", ...lines] };
}

/** Return a change of VS Code's as `Hunks` follows it. @param {vscode.TextDocumentContentChangeEvent} change */
function changeOf({ range, text }) {
  const startsLine = range.start.character === 0 && range.end.character === 0;
  return { first: range.start.line, last: range.end.line, startsLine, text };
}

/** Return a splice of whole lines as a change. @param {import("./lines").Splice} splice */
function lineChange({ start, count, lines }) {
  return { first: start, last: start + count, startsLine: true, text: lines.map((line) => `${line}\n`).join("") };
}

/** Return a path with links followed, or as it is where there is no such file. @param {string} path */
function realPath(path) {
  try {
    return fs.realpathSync(path);
  } catch {
    return path;
  }
}

/** Make a text the whole of another file: a new one is made, one that is there is changed and not saved. @param {string} path @param {string} text */
async function placed(path, text) {
  const uri = vscode.Uri.file(path);
  const change = new vscode.WorkspaceEdit();
  if (fs.existsSync(path)) {
    const { lineCount } = await vscode.workspace.openTextDocument(uri);
    change.replace(uri, new vscode.Range(0, 0, lineCount, 0), text);
  } else {
    change.createFile(uri, { contents: Buffer.from(text, "utf-8") });
  }
  return vscode.workspace.applyEdit(change);
}

module.exports = { DocumentLines, changeOf, lineChange, placed, realPath };
