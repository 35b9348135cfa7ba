// The box where an instruction is typed, and what it is about: the selection, or the place that the model finds.
//
// Owns the words in the box. While the user types, the model reads what it will need.
"use strict";

const vscode = require("vscode");

/** @typedef {{ lines: vscode.Range | null, words: string }} Place */

/**
 * Return what an instruction would be about: whole lines if something is selected, otherwise the function around
 * the cursor, otherwise the file.
 * @param {vscode.TextEditor} editor @returns {Place}
 */
function placeOf({ document, selection }) {
  if (selection.isEmpty) return { lines: null, words: document.uri.path.split("/").pop() ?? "" };
  const endsBefore = selection.end.character === 0 && selection.end.line > selection.start.line;
  const last = selection.end.line - (endsBefore ? 1 : 0);
  const words = last === selection.start.line ? `line ${last + 1}` : `lines ${selection.start.line + 1}–${last + 1}`;
  return { lines: new vscode.Range(selection.start.line, 0, last, 0), words };
}

/**
 * Return what the user typed, or "" if they left the box.
 * @param {import("./face").Face} _face @param {vscode.TextEditor} _editor @param {Place | null} place null: an edit runs
 * @returns {Promise<string>}
 */
async function askInstruction(_face, _editor, place) {
  const prompt = place ? `Enter edits ${place.words}` : "Enter turns the running edit around";
  const placeHolder = place ? "What shall change?" : "What else, or what instead?";
  return ((await vscode.window.showInputBox({ title: "Vivace", prompt, placeHolder })) ?? "").trim();
}

module.exports = { askInstruction, placeOf };
