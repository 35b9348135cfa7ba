// What the app knows and what a person can do in it. Owns the state, the connection and every request about a conversation.
// Files have their own (`files/buffers`). Views read `state` through `useValue` and call these functions; they know no socket.

import { keep, kept, rememberTalk, rememberedTalk } from "./place.js";
import { Link } from "./link.js";
import { counts, touch } from "./store.js";
import { newTalk, take } from "./talk/fold.js";

const VERSION = 1; // of the protocol
const PREFILL_AFTER_MS = 120;

/**
 * @typedef {{ id: string, text: string, hint: string, isError: boolean }} Notice
 * @typedef {{ folder: string, models: { name: string, title?: string, is_here?: boolean }[], efforts: string[], policies: { name: string, help: string }[] }} Welcome
 */

export const state = {
  connection: "connecting", // connected, lost or refused
  lostReason: "",
  welcome: /** @type {Welcome | null} */ (null), // the host's answer to hello
  talk: newTalk(),
  talks: /** @type {object[]} */ ([]), // rows of the list
  search: "", // words that the list's conversations have in them
  view: kept("view", "talks"), // of the side bar: talks, files, tasks or numbers
  pane: "talk", // on a narrow screen: side, talk or file
  theme: kept("theme", "auto"), // auto, dark or light
  notices: /** @type {Notice[]} */ ([]),
  dialog: "", // "", keys, open (a file), folder, context
  draft: kept("draft", ""),
};

const eventListeners = new Set();
export const link = new Link({ connected: greet, lost: sayLost, event: receive });

/** Call this with every event of the open conversation and of the face itself, as long as the page is there: not for components. */
export function onEvent(listener) {
  eventListeners.add(listener);
}

export function start() {
  link.open();
  addEventListener("online", () => link.open());
  document.addEventListener("visibilitychange", () => document.hidden || link.open());
}

/** Change the state, to be drawn with the next frame. */
export function change(values) {
  Object.assign(state, values);
  for (const name of ["view", "theme", "draft"]) if (name in values) keep(name, values[name]);
  touch();
}

/** Show a line that goes away by itself. */
export function notify(text, { hint = "", isError = false } = {}) {
  const notice = { id: crypto.randomUUID?.() ?? String(Math.random()), text, hint, isError };
  change({ notices: [...state.notices.slice(-3), notice] });
  setTimeout(() => dismiss(notice.id), isError ? 12_000 : 4000);
}

export function dismiss(id) {
  change({ notices: state.notices.filter((notice) => notice.id !== id) });
}

/** Send a request about the open conversation. Say what went wrong, and return null then. */
export async function ask(operation, args = {}) {
  return request(operation, { conversation: state.talk.id, ...args });
}

/** Send a request. Say what went wrong, and return null then. */
export async function request(operation, args = {}) {
  try {
    return await link.call(operation, args);
  } catch (error) {
    notify(error.message, { hint: error.hint, isError: true });
    return null;
  }
}

// ---- the connection -----------------------------------------------------------------------------------------------

async function greet() {
  try {
    const welcome = await link.call("hello", { version: VERSION, folder: state.welcome?.folder ?? "" });
    change({ welcome, connection: "connected", lostReason: "" });
    await openTalk(state.talk.id || rememberedTalk());
    await listTalks();
    tell({ type: "connected" });
  } catch (error) {
    if (error.code !== "gone") change({ connection: "refused", lostReason: `${error.message} ${error.hint}` });
  }
}

function sayLost(reason) {
  change({ connection: "lost", lostReason: reason });
}

function receive({ conversation = "", seq = 0, event }) {
  counts.events += 1;
  if (conversation && conversation !== state.talk.id) return;
  if (conversation) {
    if (seq && seq <= state.talk.seq && !event.type.startsWith("live.") && !event.type.startsWith("question")) return; // known already
    state.talk.seq = Math.max(state.talk.seq, seq);
    if (event.type === "conversation.lost") return void openTalk(state.talk.id);
    take(state.talk, event);
    if (event.type === "turn.ended" || event.type === "turn.started") listTalksSoon();
  }
  tell(event);
  touch();
}

function tell(event) {
  for (const listener of eventListeners) listener(event);
}

// ---- conversations ------------------------------------------------------------------------------------------------

/** Open a conversation, or a new one. After a lost connection only what was missed is taken in. */
export async function openTalk(id = "") {
  const known = id && id === state.talk.id ? state.talk : null;
  let snapshot;
  try {
    const since = known?.epoch ? { epoch: known.epoch, after: known.seq } : {};
    snapshot = await link.call("conversation.open", { conversation: id, ...since });
  } catch (error) {
    if (error.code === "gone") return;
    notify(error.message, { hint: error.hint, isError: true });
    if (id) await openTalk("");
    return;
  }
  if (state.talk.id && state.talk.id !== snapshot.conversation) link.call("conversation.close", { conversation: state.talk.id }).catch(() => {});
  showSnapshot(snapshot, known);
  if (id !== snapshot.conversation) rememberTalk(snapshot.turns ? snapshot.conversation : "");
}

function showSnapshot(snapshot, known) {
  const talk = snapshot.is_whole || !known ? newTalk(snapshot.conversation) : known;
  talk.questions.clear();
  talk.live.clear();
  for (const record of snapshot.records) take(talk, record);
  for (const { event } of snapshot.events) take(talk, event);
  for (const event of snapshot.live) take(talk, event);
  Object.assign(talk, { epoch: snapshot.epoch, seq: snapshot.seq, folder: snapshot.folder, isRunning: snapshot.is_running });
  if (snapshot.title) talk.title = snapshot.title;
  rememberTalk(talk.turns.length ? talk.id : "");
  change({ talk });
  for (const event of snapshot.live) tell(event);
}

let listTimer = 0;
function listTalksSoon() {
  if (state.talk.turns.length) rememberTalk(state.talk.id);
  clearTimeout(listTimer);
  listTimer = setTimeout(() => listTalks(), 300);
}

/** List the conversations again: those that are searched for, or all. */
export async function listTalks() {
  const { search } = state;
  const words = search.trim();
  const answer = words ? await request("conversations.search", { words }) : await request("conversations.list");
  if (answer && search === state.search) change({ talks: answer.conversations });
}

export async function renameTalk(id, title) {
  if (await request("conversations.rename", { conversation: id, title })) {
    if (id === state.talk.id) state.talk.title = title;
    await listTalks();
  }
}

export async function deleteTalk(id) {
  if (id === state.talk.id) await openTalk("");
  if (await request("conversations.delete", { conversation: id })) await listTalks();
}

export async function forkTalk(id) {
  const forked = await request("conversations.fork", { conversation: id });
  if (!forked) return;
  await openTalk(forked.conversation);
  await listTalks();
  notify("Forked: this conversation goes on by itself.");
}

/** Work in another folder: its files, and a new conversation there. Return whether it could be opened. */
export async function changeFolder(path) {
  const welcome = await request("folder.open", { path });
  if (!welcome) return false;
  change({ welcome });
  tell({ type: "folder.changed" });
  await openTalk("");
  return true;
}

// ---- talking ------------------------------------------------------------------------------------------------------

/** Send the text, or steer the running turn with it. Return whether it arrived: the draft is kept otherwise. */
export async function send(text) {
  const isRunning = state.talk.isRunning;
  const answer = await ask(isRunning ? "conversation.steer" : "conversation.send", { text });
  return answer !== null;
}

export async function queue(text) {
  return (await ask("conversation.queue.add", { text })) !== null;
}

export function stop() {
  if (state.talk.isRunning) ask("conversation.stop");
}

let prefillTimer = 0;
/** Keep the draft, and let the model read it when the typing pauses for a moment. */
export function typed(draft) {
  change({ draft });
  clearTimeout(prefillTimer);
  const { id } = state.talk;
  if (state.connection !== "connected" || !id) return;
  prefillTimer = setTimeout(() => {
    link.call("conversation.prefill", { conversation: id, draft }).catch(() => {}); // nothing is lost without it
  }, PREFILL_AFTER_MS);
}

export function forgetPrefill() {
  clearTimeout(prefillTimer);
}

/** Take back a turn and all behind it, and put its text into the prompt again. */
export async function rewindTo(turn, { code }) {
  const text = turn.text;
  if (state.talk.isRunning) await ask("conversation.stop");
  if ((await ask("conversation.rewind", { turn: turn.number, code, talk: true })) === null) return;
  change({ draft: text });
}

// ---- questions ----------------------------------------------------------------------------------------------------

/** What was said about each hunk of a question so far: hunk → "keep" or "undo". */
const marks = new WeakMap();

export function marksOf(question) {
  if (!marks.has(question)) marks.set(question, new Map());
  return marks.get(question);
}

/** Keep or undo one hunk. When all are marked, the question is answered. */
export function markHunk(question, hunk, mark) {
  const marked = marksOf(question);
  if (marked.get(hunk) === mark) marked.delete(hunk);
  else marked.set(hunk, mark);
  const hunks = question.files.flatMap((file) => file.hunks.map((each) => each.hunk));
  state.talk.version += 1;
  touch();
  if (hunks.some((each) => !marked.has(each))) return;
  const kept = hunks.filter((each) => marked.get(each) === "keep");
  if (!kept.length) decide(question, "reject");
  else if (kept.length === hunks.length) decide(question, "accept");
  else decide(question, "hunks", { hunks: kept });
}

export function decide(question, decision, args = {}) {
  ask("conversation.decide", { question: question.question, decision, ...args });
}

const UNREAD_MS = 400; // a yes this soon after a call was asked about, or the page came to the front, was meant for something else
const asked = new Map(); // what is asked → when it was first drawn
let cameForward = 0;
addEventListener("focus", () => (cameForward = performance.now()));

/** Remember when a question about a call was first there to be read. */
export function noteAsked(question) {
  if (!asked.has(keyOf(question))) asked.set(keyOf(question), performance.now());
}

/** Return whether there was time to read a question, here and in front. */
export function isRead(question) {
  return performance.now() - Math.max(asked.get(keyOf(question)) ?? Infinity, cameForward) >= UNREAD_MS;
}

const keyOf = ({ question = "", digest = "" }) => `${question} ${digest}`;

/** Answer a question about a call. The answer names what was shown. */
export function approve(question, is_allowed, more = {}) {
  if (is_allowed && !isRead(question)) return;
  ask("conversation.approve", { question: question.question, digest: question.digest ?? "", is_allowed, ...more });
}

/** The question that waits longest, or undefined. */
export function openQuestion() {
  return state.talk.questions.values().next().value;
}
