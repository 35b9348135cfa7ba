// The folder's files as a tree, and quick open by a few letters. Owns both lists; a file is opened through `buffers`.

import { useEffect, useRef, useState } from "preact/hooks";
import { change, link, request, state } from "../app.js";
import { html } from "../html.js";
import { Dialog } from "../shell/dialog.js";
import { fileName, shown } from "../shell/text.js";
import { useValue } from "../store.js";
import { files, openFile } from "./buffers.js";

const MOST_ROWS = 2000;

export function Tree() {
  const folder = useValue(() => state.welcome?.folder);
  const active = useValue(() => files.active);
  const [entries, setEntries] = useState(/** @type {{ path: string, is_folder: boolean }[] | null} */ (null));
  const [isCut, setCut] = useState(false);
  const [unfolded, setUnfolded] = useState(new Set());
  const load = async () => {
    const tree = await request("files.tree");
    if (tree) (setEntries(tree.entries), setCut(tree.is_cut));
  };
  useEffect(() => void load(), [folder]);
  const toggle = (path) => {
    const next = new Set(unfolded);
    if (!next.delete(path)) next.add(path);
    setUnfolded(next);
  };
  const open = (path) => {
    openFile(path);
    change({ pane: "file" });
  };
  if (!entries) return html`<p class="dim pad">…</p>`;
  const rows = entries.filter((entry) => isUnfolded(entry.path, unfolded)).slice(0, MOST_ROWS);
  return html`<div class="tree-head"><button class="quiet" onClick=${() => change({ dialog: "open" })}>find a file <kbd>Ctrl P</kbd></button><span class="spacer"></span><button class="quiet" onClick=${load}>refresh</button></div>
    <ul class="tree" role="tree" aria-label="Files of the folder" onKeyDown=${moveInTree}>
      ${rows.map((entry) => html`<li key=${entry.path} role="none"><button role="treeitem" aria-expanded=${entry.is_folder ? unfolded.has(entry.path) : undefined} aria-selected=${entry.path === active}
        class=${entry.is_folder ? "folder" : "file"} style=${{ paddingInlineStart: `${10 + 13 * depth(entry.path)}px` }} title=${shown(entry.path)}
        onClick=${() => (entry.is_folder ? toggle(entry.path) : open(entry.path))}><i aria-hidden="true">${entry.is_folder ? (unfolded.has(entry.path) ? "▾" : "▸") : ""}</i><bdi>${shown(fileName(entry.path))}</bdi></button></li>`)}
    </ul>
    ${(isCut || rows.length === MOST_ROWS) && html`<p class="dim pad">There are more files than are listed: find them with Ctrl+P.</p>`}`;
}

function depth(path) {
  return path.split("/").length - 1;
}

function isUnfolded(path, unfolded) {
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) if (!unfolded.has(path.slice(0, at))) return false;
  return true;
}

function moveInTree(event) {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const next = step && event.target.closest("li")?.[step]?.firstElementChild;
  if (!next) return;
  event.preventDefault();
  next.focus();
}

export function QuickOpen() {
  const [words, setWords] = useState("");
  const [paths, setPaths] = useState(/** @type {string[]} */ ([]));
  const [chosen, setChosen] = useState(0);
  const asked = useRef("");
  useEffect(() => {
    asked.current = words;
    link.call("files.find", { words, limit: 30 }).then((found) => {
      if (asked.current === words) (setPaths(found.paths), setChosen(0));
    }, () => setPaths([]));
  }, [words]);
  const close = () => change({ dialog: "" });
  const open = (path) => {
    close();
    if (path) (openFile(path), change({ pane: "file" }));
  };
  const keydown = (event) => {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) (event.preventDefault(), setChosen((chosen + moves[event.key] + paths.length) % Math.max(1, paths.length)));
    else if (event.key === "Enter") (event.preventDefault(), open(paths[chosen]));
  };
  return html`<${Dialog} label="Open a file" close=${close} className="finder">
    <input placeholder="letters of a path" aria-label="Find a file" value=${words} onInput=${(event) => setWords(event.target.value)} onKeyDown=${keydown} ref=${focusOnce} autocomplete="off" spellcheck="false" />
    <ul role="listbox" aria-label="Files">${paths.map((path, n) => html`<li key=${path} role="option" aria-selected=${n === chosen} onClick=${() => open(path)}><bdi>${shown(path)}</bdi></li>`)}</ul>
    ${!paths.length && html`<p class="dim pad">No file fits.</p>`}
  <//>`;
}

function focusOnce(element) {
  if (element && !element.dataset.focused) {
    element.dataset.focused = "yes";
    element.focus();
  }
}
