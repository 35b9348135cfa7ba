// The box where an instruction is typed, and what it is about: the selection, or the function around the cursor.
//
// Owns the words in the box. From its opening on the model reads what it will need, and what is typed.
"use strict";

const vscode = require("vscode");

const REST_MS = 150; // between the last key and the reading of what was typed

/**
 * @typedef {{ selection: { first_line: number, last_line: number } } | { line: number }} Asked as the host wants it, lines from 1
 * @typedef {{ asked: Asked, words: string }} Place
 */

/**
 * Return what an instruction would be about: whole lines if something is selected. Otherwise the host takes the
 * function around the cursor, and the model looks in the whole file where there is none.
 * @param {vscode.TextEditor} editor @returns {Place}
 */
function placeOf({ document, selection: { isEmpty, start, end } }) {
  if (isEmpty) {
    const words = `the function at the cursor, or what fits in ${document.uri.path.split("/").pop()}`;
    return { asked: { line: start.line + 1 }, words };
  }
  const last = end.character === 0 && end.line > start.line ? end.line : end.line + 1;
  const words = last === start.line + 1 ? `line ${last}` : `lines ${start.line + 1} to ${last}`;
  return { asked: { selection: { first_line: start.line + 1, last_line: last } }, words };
}

/**
 * Return what the user typed, or "" if they left the box.
 * @param {import("../server/face").Face} face @param {vscode.TextDocument} document @param {Place | null} place null: an edit runs
 * @returns {Promise<string>}
 */
function askInstruction(face, document, place) {
  const box = vscode.window.createInputBox();
  box.title = "Vivace";
  box.prompt = place ? `Enter edits ${place.words}.` : "Enter turns the running edit around.";
  box.placeholder = place ? "What shall change?" : "What else, or what instead?";
  const read = () => place && prefill(face, document, place, box.value);
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  return new Promise((resolve) => {
    box.onDidChangeValue(() => {
      clearTimeout(timer);
      timer = setTimeout(read, REST_MS);
    });
    box.onDidAccept(() => {
      clearTimeout(timer); // the edit begins, and reads by itself
      resolve(box.value.trim());
      box.hide();
    });
    box.onDidHide(() => {
      clearTimeout(timer);
      resolve("");
      box.dispose();
    });
    box.show();
    read();
  });
}

/** Let the model read ahead. What goes wrong here goes wrong again, and is said, when the edit begins. @param {import("../server/face").Face} face @param {vscode.TextDocument} document @param {Place} place @param {string} draft */
function prefill(face, document, { asked }, draft) {
  const request = { path: document.uri.fsPath, text: document.getText(), ...asked, draft };
  face.requestIn(folderOf(document), "edit.prefill", request).catch(() => {});
}

/** Return the folder that a file belongs to: of the workspace, or its own. @param {vscode.TextDocument} document */
function folderOf({ uri }) {
  return (vscode.workspace.getWorkspaceFolder(uri)?.uri ?? vscode.Uri.joinPath(uri, "..")).fsPath;
}

module.exports = { askInstruction, folderOf, placeOf };
