// Files that are open: their text on disk with its digest, and what the user has typed and not saved. Owns saving, and the rule
// that nothing of the user's is overwritten: neither their unsaved text by the disk, nor the disk by an old text. Knows no element.

import { change, link, notify, onEvent, request, state } from "../app.js";
import { relative } from "../shell/text.js";
import { touch } from "../store.js";

const OFFER_AFTER_MS = 250;

export const files = {
  open: /** @type {string[]} */ ([]), // as tabs
  active: "",
  buffers: new Map(), // path → buffer
  version: 0,
};

onEvent((event) => {
  if (event.type === "file.changed") look(keyOf(event.path));
  else if (event.type === "connected") refresh();
  else if (event.type === "folder.changed") closeAll();
  else if (event.type === "edit.applied") look(keyOf(event.path));
  else if (event.type === "edits.undone" || event.type === "edits.redone" || event.type === "rewound") refresh();
});

/** Return the path below the folder: events have absolute ones. */
export function keyOf(path) {
  return relative(path, state.welcome?.folder ?? "");
}

export function activeBuffer() {
  return files.buffers.get(files.active);
}

export function isDirty(buffer) {
  return buffer.draft !== null && buffer.draft !== buffer.text;
}

/** Return what the user sees: the unsaved text, or that of the disk. */
export function currentText(buffer) {
  return buffer.draft ?? buffer.text;
}

/** Show a file. Return its buffer, or null if it cannot be read. */
export async function openFile(path, { isQuiet = false } = {}) {
  const key = keyOf(path);
  if (!files.buffers.has(key)) {
    const read = await readFile(path, isQuiet);
    if (!read) return null;
    files.buffers.set(key, { path: key, absolute: read.absolute, draft: null, conflict: null, ...onDisk(read) });
    files.open.push(key);
    watch();
  }
  files.active = key;
  changed();
  return files.buffers.get(key);
}

export function showFile(path) {
  files.active = path;
  changed();
}

/** Close a tab. One with unsaved text stays, and the reason is said. */
export function closeFile(path) {
  const buffer = files.buffers.get(path);
  if (buffer && isDirty(buffer)) return notify("This file has unsaved text.", { hint: "Save it with Ctrl+S, or revert it." });
  files.buffers.delete(path);
  const at = files.open.indexOf(path);
  files.open = files.open.filter((each) => each !== path);
  if (files.active === path) files.active = files.open[Math.min(at, files.open.length - 1)] ?? "";
  if (!files.active) change({ pane: "talk" });
  watch();
  return changed();
}

/** Close everything that has no unsaved text. */
function closeAll() {
  for (const path of [...files.open]) if (!isDirty(files.buffers.get(path))) closeFile(path);
}

const offers = new Map(); // path → timer
/** Keep what the user has typed. Edits and mentions read it in place of the file. */
export function typedInto(path, text) {
  const buffer = files.buffers.get(path);
  buffer.draft = text;
  changed();
  clearTimeout(offers.get(path));
  offers.set(path, setTimeout(() => offer(buffer), OFFER_AFTER_MS));
}

function offer(buffer) {
  const text = isDirty(buffer) ? withNewlines(buffer, buffer.draft) : null;
  link.call("buffers.set", { path: buffer.path, text }).catch(() => {}); // offered again after a reconnect
}

export async function save(path = files.active) {
  const buffer = files.buffers.get(path);
  if (!buffer || !isDirty(buffer) || buffer.conflict) return;
  const text = buffer.draft;
  try {
    const { digest } = await link.call("files.write", { path, text: withNewlines(buffer, text), digest: buffer.digest });
    Object.assign(buffer, { text, digest, conflict: null });
    if (buffer.draft === text) buffer.draft = null;
    offer(buffer);
  } catch (error) {
    if (error.code === "changed") await look(path);
    else notify(error.message, { hint: error.hint, isError: true });
  }
  changed();
}

/** Forget the unsaved text. */
export function revert(path = files.active) {
  const buffer = files.buffers.get(path);
  buffer.draft = null;
  buffer.isReplaced = true;
  offer(buffer);
  changed();
}

/** Answer a conflict between the unsaved text and the disk: `mine` is written over it, `disk` replaces the unsaved text. */
export async function settleConflict(path, choice) {
  const buffer = files.buffers.get(path);
  const { conflict } = buffer;
  buffer.conflict = null;
  if (choice === "mine") {
    Object.assign(buffer, conflict);
    await save(path);
  } else if (choice === "disk") {
    Object.assign(buffer, conflict, { draft: null, isReplaced: true });
    offer(buffer);
  }
  changed();
}

// ---- the disk ---------------------------------------------------------------------------------------------------------

/** Read a file again. Unsaved text is never replaced: a difference is asked about. */
async function look(path) {
  const buffer = files.buffers.get(path);
  if (!buffer) return;
  const read = await readFile(path, true);
  if (!read || read.digest === buffer.digest) return;
  if (isDirty(buffer)) buffer.conflict = onDisk(read);
  else Object.assign(buffer, onDisk(read), { draft: null, isReplaced: true, conflict: null });
  changed();
}

function refresh() {
  watch();
  for (const buffer of files.buffers.values()) {
    look(buffer.path);
    if (isDirty(buffer)) offer(buffer);
  }
}

async function readFile(path, isQuiet) {
  if (!isQuiet) return request("files.read", { path });
  try {
    return await link.call("files.read", { path });
  } catch {
    return null;
  }
}

/** CodeMirror counts every kind of line end as one: a file with several kinds is only shown, so that none is lost. */
function onDisk({ text, digest, is_writable }) {
  const isWindows = text.includes("\r\n") && !/(^|[^\r])\n/.test(text) && !/\r(?!\n)/.test(text);
  const isMixed = !isWindows && text.includes("\r");
  return { text: isMixed ? text : text.replaceAll("\r\n", "\n"), digest, newline: isWindows ? "\r\n" : "\n", isWritable: is_writable && !isMixed, isMixed };
}

function withNewlines(buffer, text) {
  return buffer.newline === "\n" ? text : text.replaceAll("\n", buffer.newline);
}

function watch() {
  link.call("files.watch", { paths: [...files.open] }).catch(() => {});
}

function changed() {
  files.version += 1;
  touch();
}
