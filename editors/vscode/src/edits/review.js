// What the user sees of edits, and decides about them: colours, Keep and Undo above each hunk, comparison.
//
// Owns all edits of the window, one a document, and the commands about them. Never moves the focus.
"use strict";

const vscode = require("vscode");
const { Editing } = require("./editing");
const { Waiting } = require("./waiting");

const SCHEME = "vivace-edit";

class Review {
  /** @param {import("../server/face").Face} face @param {import("../status").Status} status */
  constructor(face, status) {
    this._face = face;
    this._status = status;
    /** @type {Map<string, Editing>} by the document */
    this._edits = new Map();
    this._added = vscode.window.createTextEditorDecorationType({
      isWholeLine: true,
      backgroundColor: new vscode.ThemeColor("diffEditor.insertedLineBackground"),
      overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.addedForeground"),
      overviewRulerLane: vscode.OverviewRulerLane.Left,
    });
    this._removed = vscode.window.createTextEditorDecorationType({
      isWholeLine: true,
      borderColor: new vscode.ThemeColor("editorGutter.deletedBackground"),
      borderStyle: "solid",
      borderWidth: "2px 0 0 0",
    });
    this._lensesChanged = /** @type {vscode.EventEmitter<void>} */ (new vscode.EventEmitter());
    this.onDidChangeCodeLenses = this._lensesChanged.event;
    this._textChanged = new vscode.EventEmitter();
    this.onDidChange = this._textChanged.event;
    this._shown = new vscode.Disposable(() => {});
  }

  /** @returns {vscode.Disposable[]} */
  register() {
    const here = (/** @type {string} */ name, /** @type {(edit: Editing, id: number) => unknown} */ run) =>
      vscode.commands.registerCommand(name, (uri, id) => this._at(uri, id, run));
    return [
      vscode.languages.registerCodeLensProvider({ scheme: "file" }, this),
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.window.onDidChangeVisibleTextEditors(() => this._decorate()),
      vscode.window.onDidChangeActiveTextEditor(() => this._contexts()),
      here("vivace.keep", (edit, id) => edit.keep(id)),
      here("vivace.undo", (edit, id) => edit.undo(id)),
      here("vivace.keepAll", (edit) => edit.keepAll()),
      here("vivace.undoAll", (edit) => edit.undoAll()),
      here("vivace.stop", (edit) => edit.stop()),
      here("vivace.compare", (edit) => this._compare(edit)),
      this._added,
      this._removed,
    ];
  }

  /** Return the edit of a document that is written or reviewed. @param {vscode.TextDocument} document */
  of(document) {
    return this._edits.get(document.uri.toString());
  }

  /** Begin an edit. @param {vscode.TextEditor} editor @param {string} instruction @param {import("./instruction").Asked} asked */
  async begin(editor, instruction, asked) {
    const before = this.of(editor.document);
    if (before) await before.keepAll();
    const waiting = new Waiting(() => void edit.stop());
    const edit = new Editing(this._face, editor, instruction, {
      changed: (each) => {
        waiting.show(each.activity);
        this._changed(each);
      },
      failed: (_, message) => void vscode.window.showErrorMessage(`Vivace: ${message} The file is as it was.`),
      told: (message) => void vscode.window.showInformationMessage(`Vivace: ${message}`),
      conflicted: (each) => void this._conflicted(each),
      measured: (measured) => this._status.measured(measured),
    });
    this._edits.set(editor.document.uri.toString(), edit);
    this._changed(edit);
    try {
      await edit.start(asked);
    } catch (error) {
      edit._end();
      throw error;
    }
  }

  /** @param {vscode.TextDocument} document */
  provideCodeLenses(document) {
    const edit = this.of(document);
    if (edit?.state !== "reviewing") return [];
    const uri = document.uri.toString();
    return edit.hunks.all.flatMap(({ id, start, count, old }, index) => {
      const range = new vscode.Range(start, 0, start, 0);
      const lens = (/** @type {string} */ title, /** @type {string} */ command) =>
        new vscode.CodeLens(range, { title, command, arguments: [uri, id] });
      const figures = `${count ? `+${count}` : ""}${count && old.length ? " " : ""}${old.length ? `−${old.length}` : ""}`;
      const own = [lens(`$(check) Keep (${figures})`, "vivace.keep"), lens("$(discard) Undo", "vivace.undo")];
      const all = [lens("Keep all", "vivace.keepAll"), lens("Undo all", "vivace.undoAll"), lens("Compare", "vivace.compare")];
      return index === 0 ? [...own, ...all] : own;
    });
  }

  /** @param {vscode.Uri} uri */
  provideTextDocumentContent(uri) {
    const [side, document] = [uri.authority, decodeURIComponent(uri.query)];
    const edit = this._edits.get(document);
    return (side === "before" ? edit?.original : edit?.proposed) ?? "";
  }

  /** @param {string | undefined} uri @param {number | undefined} id @param {(edit: Editing, id: number) => unknown} run */
  _at(uri, id, run) {
    const editor = vscode.window.activeTextEditor;
    const edit = this._edits.get(uri ?? editor?.document.uri.toString() ?? "");
    if (!edit) return undefined;
    const hunk = id ?? edit.hunks.at(editor?.selection.active.line ?? 0)?.id ?? 0;
    return run(edit, hunk);
  }

  /** @param {Editing} edit */
  _changed(edit) {
    const uri = edit.document.uri.toString();
    if (edit.state === "over" && this._edits.get(uri) === edit) this._edits.delete(uri);
    const isLarge = edit.changedLines > vscode.workspace.getConfiguration("vivace.edit").get("largeLines", 120);
    if (edit.state === "reviewing" && isLarge && !edit.wasCompared) this._compare(edit);
    this._decorate();
    this._contexts();
    this._lensesChanged.fire();
    const writing = [...this._edits.values()].filter(({ state }) => state === "writing");
    const isWaiting = writing.length && writing.every(({ activity }) => activity);
    this._status.doing(isWaiting ? "waiting (Esc stops)" : writing.length ? "writing (Esc stops)" : "");
  }

  _decorate() {
    for (const editor of vscode.window.visibleTextEditors) {
      const hunks = this.of(editor.document)?.hunks.all ?? [];
      const lines = (/** @type {import("./hunks").Hunk} */ { start, count }) =>
        new vscode.Range(start, 0, start + Math.max(1, count) - 1, Number.MAX_SAFE_INTEGER);
      editor.setDecorations(
        this._added,
        hunks.filter(({ count }) => count).map((hunk) => ({ range: lines(hunk), hoverMessage: removed(hunk) })),
      );
      editor.setDecorations(
        this._removed,
        hunks.filter(({ count }) => !count).map((hunk) => ({ range: lines(hunk), hoverMessage: removed(hunk) })),
      );
    }
  }

  _contexts() {
    const document = vscode.window.activeTextEditor?.document;
    const state = document && this.of(document)?.state;
    void vscode.commands.executeCommand("setContext", "vivace.writing", state === "writing");
    void vscode.commands.executeCommand("setContext", "vivace.reviewing", state === "reviewing");
  }

  /** @param {Editing} edit */
  async _compare(edit) {
    edit.wasCompared = true;
    const uri = edit.document.uri;
    const side = (/** @type {string} */ name) =>
      vscode.Uri.from({ scheme: SCHEME, authority: name, path: uri.path, query: encodeURIComponent(uri.toString()) });
    const name = uri.path.split("/").pop();
    const [left, right] = edit.isConflicted ? [uri, side("edit")] : [side("before"), uri];
    const options = { preserveFocus: true, preview: true, viewColumn: vscode.ViewColumn.Beside };
    this._textChanged.fire(side(edit.isConflicted ? "edit" : "before")); // it may be open, of an edit before
    await vscode.commands.executeCommand("vscode.diff", left, right, `${name}: ${edit.instruction}`, options);
  }

  /** @param {Editing} edit */
  async _conflicted(edit) {
    const text = "Vivace: you typed where the edit was written. Your text stays, and the edit stopped there.";
    const choice = await vscode.window.showWarningMessage(text, "Compare", "Undo the Edit");
    if (choice === "Compare") await this._compare(edit);
    if (choice === "Undo the Edit") await edit.undoAll();
  }
}

/** Return what stood in place of a hunk, to be shown when the mouse is over it. @param {import("./hunks").Hunk} hunk */
function removed({ old }) {
  if (!old.length) return undefined;
  return new vscode.MarkdownString("Before:").appendCodeblock(old.join("\n"));
}

module.exports = { Review };
