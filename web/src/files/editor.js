// CodeMirror: one view for the user's own text, one for a text that is proposed. This file and what it imports is loaded when
// the first file or piece of code is shown.
//
// Styles: CodeMirror adds rules at run time. In a document it would put them into a <style> element, which `style-src 'self'`
// forbids. In a shadow root it uses constructable style sheets, which are no inline styles: so each view has its own root.
// Colours are custom properties, which reach into a shadow root.

import { basicSetup } from "codemirror";
import { syntaxHighlighting } from "@codemirror/language";
import { unifiedMergeView } from "@codemirror/merge";
import { Compartment, EditorState, Transaction } from "@codemirror/state";
import { EditorView, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { indentWithTab } from "@codemirror/commands";
import { classes, languageOf } from "./languages.js";
import { changeOf } from "./live_text.js";

export { highlighter } from "./languages.js";

/** @typedef {import("./live_text.js").LiveText} LiveText */

const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "transparent", fontSize: "var(--code-size)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overscrollBehavior: "contain" },
  ".cm-content": { caretColor: "var(--accent)", paddingBlock: "8px" },
  ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  "&.cm-focused": { outline: "none" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--selection)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--dim)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-selectionMatch": { backgroundColor: "var(--selection)" },
  ".cm-foldPlaceholder": { background: "var(--hover)", border: "none", color: "var(--dim)" },
  ".cm-panels": { background: "var(--panel)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panel input, .cm-panel button": { font: "inherit", color: "inherit", background: "var(--ground)", border: "1px solid var(--line)", borderRadius: "4px" },
  ".cm-tooltip": { background: "var(--panel)", border: "1px solid var(--line)", color: "var(--text)" },
  ".cm-changedLine, &.cm-merge-b .cm-changedLine": { backgroundColor: "var(--added)" },
  "&.cm-merge-b .cm-changedText": { background: "var(--added-strong)" },
  ".cm-deletedChunk": { backgroundColor: "var(--deleted)", paddingLeft: "6px" },
  ".cm-deletedChunk .cm-deletedText": { background: "var(--deleted-strong)" },
  ".cm-changeGutter": { width: "3px", paddingLeft: "0" },
  "&.cm-merge-b .cm-changedLineGutter": { background: "var(--green)" },
  ".cm-deletedLineGutter": { background: "var(--red)" },
  ".cm-chunkButtons": { insetInlineEnd: "8px" },
  ".cm-chunkButtons button": { font: "500 11px var(--sans)", padding: "1px 8px", borderRadius: "4px", border: "1px solid var(--line)", background: "var(--panel)", color: "var(--text)", cursor: "pointer", marginLeft: "4px" },
  ".k": { color: "var(--code-keyword)" },
  ".s": { color: "var(--code-string)" },
  ".c": { color: "var(--code-comment)", fontStyle: "italic" },
  ".n": { color: "var(--code-number)" },
  ".f": { color: "var(--code-function)" },
  ".t": { color: "var(--code-type)" },
  ".p": { color: "var(--code-property)" },
}); // prettier-ignore

const common = [theme, syntaxHighlighting(classes)];
const FAST_CHARS = 500; // in one update, some 5,000 tokens a second: nobody reads that
const CALM_MS = 300; // without such an update: what was fast is coloured
const forReading = [lineNumbers(), highlightSpecialChars()]; // what only serves typing costs time in every frame

function languageIn(path) {
  const language = languageOf(path);
  return language ? [language] : [];
}

function rootIn(host) {
  return host.shadowRoot ?? host.attachShadow({ mode: "open" });
}

/** The user's own text. Each file keeps its own undo history. */
export class FileEditor {
  #states = new Map(); // path → EditorState
  #shown = { path: "" }; // {path, text, isWritable}
  #canWrite = new Compartment();

  constructor(host, { typed, save }) {
    this.typed = typed;
    this.save = save;
    const root = rootIn(host);
    this.view = new EditorView({ root, parent: root });
  }

  /** Show a file. Costs nothing as long as it is the same text. */
  show(path, text, isWritable) {
    const known = this.#shown;
    if (known.path === path && known.text === text && known.isWritable === isWritable) return;
    if (known.path !== path) {
      if (known.path) this.#states.set(known.path, this.view.state);
      this.#shown = { path };
      this.view.setState(this.#states.get(path) ?? this.#newState(path, text));
    }
    if (this.#shown.isWritable !== isWritable) this.view.dispatch({ effects: this.#canWrite.reconfigure(EditorState.readOnly.of(!isWritable)) });
    this.#shown = { path, text, isWritable };
    replaceText(this.view, text);
  }

  #newState(path, text) {
    const save = () => (this.save(), true);
    const told = EditorView.updateListener.of(({ docChanged, state, transactions }) => {
      if (docChanged && !transactions.some((each) => each.annotation(Transaction.remote))) this.typed(this.#shown.path, state.doc.toString());
    });
    const label = EditorView.contentAttributes.of({ "aria-label": `Text of ${path}`, tabindex: "0" });
    const keys = keymap.of([{ key: "Mod-s", run: save, preventDefault: true }, indentWithTab]);
    return EditorState.create({ doc: text, extensions: [keys, basicSetup, ...common, told, label, this.#canWrite.of([]), ...languageIn(path)] });
  }

  destroy() {
    this.view.destroy();
  }
}

/** A text that is proposed, against the one that stands. It is shown only, and hunks can be kept and undone in it. */
export class ReviewEditor {
  /**
   * live: the text that grows; state: how far of it is shown.
   * @type {{ path: string, original: string | null, live: LiveText | null, state: LiveText["state"] | null }}
   */
  #shown = { path: "", original: null, live: null, state: null };
  #isFollowing = true;
  #language = new Compartment();
  #untilCalm = 0; // the timer that colours what was fast

  constructor(host, { marked }) {
    this.marked = marked;
    const root = rootIn(host);
    this.view = new EditorView({ root, parent: root });
    for (const type of ["wheel", "pointerdown", "touchmove"]) {
      this.view.dom.addEventListener(type, () => (this.#isFollowing = false), { passive: true });
    }
  }

  /** Show a text that is asked about, with hunks that can be kept and undone. */
  showAsked({ path, original, text, ranges }) {
    this.ranges = ranges;
    const known = this.#shown;
    if (known.path !== path || known.original !== original || known.live) {
      this.#begin({ path, original, live: null, state: null }, text);
    }
    replaceText(this.view, text);
  }

  /** Show a text that is being written: what is new of it. Its end is kept in sight until the user scrolls. */
  showLive({ path, live }) {
    this.ranges = null;
    const known = this.#shown;
    const { state } = live;
    if (known.live !== live) {
      this.#isFollowing = true;
      this.#begin({ path, original: live.original, live, state }, live.text);
      this.view.dispatch({ effects: scrolledTo(this.view.state.doc, live.line) });
    } else if (known.state?.length !== state.length) {
      const changes = this.view.state.changes(changeOf(this.view.state.doc, live.changeSince(known.state)));
      const scrolled = this.#isFollowing ? [scrolledTo(changes.apply(this.view.state.doc), live.line)] : [];
      const coloured = this.#colours(path, state.length - (known.state?.length ?? 0));
      this.view.dispatch({ changes, effects: [...scrolled, ...coloured], annotations: Transaction.remote.of(true) });
      known.state = state;
    }
  }

  /** Colours cost more than the text itself: what comes too fast to be read has them when it is calm. */
  #colours(path, grown) {
    if (grown <= FAST_CHARS) return [];
    const isColoured = !this.#untilCalm;
    clearTimeout(this.#untilCalm);
    this.#untilCalm = setTimeout(() => {
      this.#untilCalm = 0;
      this.view.dispatch({ effects: this.#language.reconfigure(languageIn(path)) });
    }, CALM_MS);
    return isColoured ? [this.#language.reconfigure([])] : [];
  }

  #begin(shown, text) {
    this.#forgetCalm();
    const { scrollTop } = this.view.scrollDOM;
    const isSameFile = this.#shown.path === shown.path;
    this.#shown = shown;
    this.view.setState(this.#newState(shown.path, shown.original, text, !shown.live));
    if (isSameFile) requestAnimationFrame(() => (this.view.scrollDOM.scrollTop = scrollTop));
  }

  #forgetCalm() {
    clearTimeout(this.#untilCalm);
    this.#untilCalm = 0;
  }

  #newState(path, original, text, hasControls) {
    const mergeControls = hasControls ? (type) => this.#button(type) : false;
    const merge = unifiedMergeView({ original, mergeControls, gutter: true, highlightChanges: true, syntaxHighlightDeletions: hasControls, diffConfig: { scanLimit: 500, timeout: 10 } });
    const label = EditorView.contentAttributes.of({ "aria-label": `Proposed text of ${path}`, tabindex: "0" });
    const locked = [EditorState.readOnly.of(true), EditorView.editable.of(false)];
    return EditorState.create({ doc: text, extensions: [...forReading, ...common, ...locked, label, merge, this.#language.of(languageIn(path))] });
  }

  #button(type) {
    const button = document.createElement("button");
    button.textContent = type === "accept" ? "keep" : "undo";
    button.onmousedown = (event) => {
      event.preventDefault();
      const { number } = this.view.state.doc.lineAt(this.view.posAtDOM(button));
      const range = this.ranges?.find(({ first, last }) => number >= first && number <= last + 1);
      if (range) this.marked(range.hunk, type === "accept" ? "keep" : "undo");
    };
    return button;
  }

  destroy() {
    this.#forgetCalm();
    this.view.destroy();
  }
}

function scrolledTo(doc, line) {
  return EditorView.scrollIntoView(doc.line(Math.max(1, Math.min(line, doc.lines))).from, { y: "nearest", yMargin: 80 });
}

/** Replace what differs in one change, so that the cursor and the undo history stay. */
function replaceText(view, text) {
  const old = view.state.doc.toString();
  if (old === text) return;
  const most = Math.min(old.length, text.length);
  let from = 0;
  while (from < most && old.charCodeAt(from) === text.charCodeAt(from)) from += 1;
  let behind = 0;
  while (behind < most - from && old.charCodeAt(old.length - 1 - behind) === text.charCodeAt(text.length - 1 - behind)) behind += 1;
  view.dispatch({
    changes: { from, to: old.length - behind, insert: text.slice(from, text.length - behind) },
    annotations: Transaction.remote.of(true),
  });
}
