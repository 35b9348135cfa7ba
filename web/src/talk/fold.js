// What the events of a conversation add up to: the same fold makes the state from a snapshot's records and from events.
// Owns the shape of a talk and of its turns. Pure: no element, no connection. A type that is not known is passed over.

import { MarkdownStream } from "./markdown_stream.js";

/**
 * @typedef {{ type: string, [name: string]: any }} Part of a turn: `turn` draws each type
 * @typedef {{ number: number, text: string, mentions: string[], at_s: number, kind: string, status: string, parts: Part[], attempt: number,
 *   times: { model: string, first_token_ms: number, turns: object[] } | null, version: number }} Turn
 */

export function newTalk(id = "") {
  return {
    id,
    epoch: "",
    seq: 0,
    folder: "",
    title: "",
    model: "",
    effort: "",
    policy: "",
    approval: "ask",
    faces: 1,
    activity: "",
    windowTokens: 0,
    usedTokens: 0,
    warm: /** @type {{ warm_tokens: number, prompt_tokens: number } | null} */ (null),
    isRunning: false,
    turns: /** @type {Turn[]} */ ([]),
    queue: /** @type {{ id: number, text: string }[]} */ ([]),
    questions: new Map(), // id → question
    live: new Map(), // path → {unit, first_line, last_line, text, turn}: what is being written
    side: /** @type {{ question: string, markdown: MarkdownStream, status: string } | null} */ (null),
    undone: new Set(), // entries of the journal that are not in their files any more
    compacted: 0, // the last turn that the model knows by a summary only
    version: 0,
  };
}

/** Return what the conversation is called: by its title, or by its first message. */
export function nameOf({ title, turns }) {
  return title || turns[0]?.text.slice(0, 80) || "New conversation";
}

/** Take one event into the talk. */
export function take(talk, event) {
  const handler = HANDLERS[event.type];
  if (!handler) return;
  const turn = talk.turns[talk.turns.length - 1];
  handler(talk, event, turn);
  if (turn) turn.version += 1;
  talk.version += 1;
}

const HANDLERS = {
  "conversation.started": (talk, { folder, model }) => Object.assign(talk, { folder, model }),
  "conversation.renamed": (talk, { title }) => (talk.title = title),
  "model.chosen": (talk, { model }) => (talk.model = model),
  "live.state": takeState,
  "live.warm": (talk, { warm_tokens, prompt_tokens }) => (talk.warm = { warm_tokens, prompt_tokens }),
  "live.diff": growDiff,
  question: (talk, question) => talk.questions.set(question.question, question),
  "question.closed": (talk, { question }) => talk.questions.delete(question),

  "turn.started": beginTurn,
  "turn.intent": (_talk, { kind }, turn) => turn && (turn.kind = kind),
  "turn.file": (_talk, { path, by }, turn) => add(turn, { type: "file", path, by }),
  "turn.code": (_talk, { pieces }, turn) =>
    add(turn, { type: "reading", names: pieces.map(({ path, unit }) => (unit ? `${path}: ${unit}` : path)) }),
  "turn.memory": (_talk, { files = [], notes = [] }, turn) => {
    const names = [...files.map((file) => file.shown), ...notes.map((note) => `# ${note}`)];
    if (names.length) add(turn, { type: "reading", names });
  },
  "attempt.started": (_talk, _event, turn) => turn && (turn.attempt = turn.parts.length),
  "attempt.abandoned": abandon,
  "reasoning.delta": (_talk, { text }, turn) => grow(turn, "reasoning", text),
  "answer.delta": (_talk, { text }, turn) => grow(turn, "answer", text),
  "edit.delta": (_talk, { text }, turn) => growEdit(turn, text),
  "edit.located": (_talk, { path, unit, lines }, turn) => add(turn, { type: "edit", path, unit, lines, text: "", diff: "" }),
  "edit.planned": (_talk, { units }, turn) => setPlan(turn, units),
  "edit.unit_left": (_talk, { unit, problem }, turn) => say(turn, `${unit} stays as it is. ${problem || "It needs no change."}`),
  "edit.compared": (_talk, { answers, examples = 0, held = 0 }, turn) =>
    say(turn, `The best of ${answers} answers${examples ? `; ${held} of ${examples} examples hold` : ""}.`),
  "edit.repairing": (_talk, { complaint }, turn) => say(turn, `Written once more: ${complaint}`),
  "edit.imports": (_talk, { imports }, turn) => say(turn, `Imported what it needs: ${imports.join("; ")}`),
  "edit.undefined": (_talk, { path, names }, turn) => warn(turn, `Nothing defines ${names.join(", ")} in ${path}.`),
  "edit.tested": (_talk, event, turn) => say(turn, testedInWords(event)),
  "edit.proposed": (talk, event, turn) => propose(talk, event, turn),
  "edit.decided": (_talk, { decision, reason = "" }, turn) => {
    if (decision === "reject") say(turn, reason ? `Rejected: ${reason}` : "Rejected.");
  },
  "edit.conflict": (_talk, { path, choice }, turn) => say(turn, `${path} had changed meanwhile: ${CHOICES[choice] ?? choice}.`),
  "edit.applied": apply,
  "edit.not_applied": (_talk, { path, reason }, turn) => {
    const part = editOf(turn, path);
    if (part) part.outcome = reason;
  },
  "turn.step": (_talk, { step }, turn) => takeStep(turn, step),
  "turn.times": (_talk, { model, first_token_ms, turns }, turn) => turn && (turn.times = { model, first_token_ms, turns }),
  error: (_talk, { code, message, hint = "" }, turn) => add(turn, { type: "error", code, message, hint }),
  "turn.ended": endTurn,
  "queue.changed": (talk, { messages = [] }) => (talk.queue = messages),
  "steer.queued": (_talk, { text }, turn) => say(turn, `The answer was over: “${text}” is next.`),
  "compaction.started": (talk, _event, turn) => ((talk.activity = "summarising"), say(turn, "The conversation is summarised.")),
  "compaction.done": (talk, { turn, summary, before_tokens }) => {
    talk.compacted = turn;
    talk.activity = "";
    const last = talk.turns[talk.turns.length - 1];
    if (last) add(last, { type: "summary", text: summary, before: before_tokens });
  },
  "compaction.undone": (talk, _event, turn) => ((talk.compacted = 0), say(turn, "The summary is not used any more.")),
  "turn.retold": (_talk, { left_out = 0 }, turn) => {
    if (left_out) say(turn, `The model reads the conversation anew; ${left_out} earlier turns do not fit its window.`);
  },
  rewound: rewind,
  "edits.undone": (talk, { entries, paths }, turn) => mark(talk, entries, true, turn, `Undone: ${paths.join(", ")}`),
  "edits.redone": (talk, { entries, paths }, turn) => mark(talk, entries, false, turn, `Redone: ${paths.join(", ")}`),
  note: (_talk, { text }, turn) => say(turn, `Noted for the next message: ${text}`),
  "side.started": (talk, { question }) => (talk.side = { question, markdown: new MarkdownStream(), status: "" }),
  "side.delta": (talk, { text }) => talk.side?.markdown.feed(text),
  "side.ended": (talk, { status }) => talk.side && (talk.side.status = status),
};

const CHOICES = { edit: "the edit was taken", file: "the file was left", text: "merged by hand", stop: "nothing was written" };

function takeState(talk, { model, effort, policy, approval, faces, activity = "", window_tokens = 0, title = "" }) {
  Object.assign(talk, { model, effort, policy, approval, faces, activity });
  if (window_tokens) talk.windowTokens = window_tokens;
  if (title) talk.title = title;
}

function beginTurn(talk, { turn, text, mentions = [], at_s = 0 }) {
  talk.isRunning = true;
  talk.warm = null;
  talk.turns.push({ number: turn, text, mentions, at_s, kind: "", status: "running", parts: [], attempt: 0, times: null, version: 0 });
}

function endTurn(talk, { status, total_tokens = 0 }, turn) {
  talk.isRunning = false;
  talk.live.clear();
  if (total_tokens) talk.usedTokens = total_tokens;
  if (!turn) return;
  turn.status = status;
  for (const part of turn.parts) if (part.type === "edit" && !part.outcome && !part.isAbandoned) part.outcome = "unfinished";
}

function add(turn, part) {
  turn?.parts.push(part);
}

function say(turn, text) {
  add(turn, { type: "line", text });
}

function warn(turn, text) {
  add(turn, { type: "line", text, isWarning: true });
}

function grow(turn, type, text) {
  if (!turn) return;
  let part = turn.parts[turn.parts.length - 1];
  if (part?.type !== type || part.isAbandoned) add(turn, (part = { type, markdown: new MarkdownStream(), version: 0 }));
  part.markdown.feed(text);
  part.version += 1;
}

/** Return what the model has answered in a turn, as Markdown; "" if it has not, or none of it stands. */
export function answerOf(turn) {
  const parts = turn.parts.filter((part) => part.type === "answer" && !part.isAbandoned);
  return parts.map((part) => part.markdown.text.trim()).join("\n\n");
}

function growEdit(turn, text) {
  const part = lastOf(turn, (each) => each.type === "edit" && !each.isAbandoned);
  if (part) part.text += text;
}

function growDiff(talk, { path, unit, first_line, last_line, delta, is_first = false }, turn) {
  const known = talk.live.get(path);
  if (is_first || known?.unit !== unit) {
    talk.live.set(path, { unit, first_line, last_line, text: delta });
    const part = lastOf(turn, (each) => each.type === "edit" && !each.isAbandoned);
    if (part && is_first) part.text = "";
  } else {
    known.text += delta;
  }
  growEdit(turn, delta);
}

function abandon(talk, { why, steer = "" }, turn) {
  if (!turn) return;
  for (const part of turn.parts.slice(turn.attempt)) if (part.type in { answer: 1, reasoning: 1, edit: 1 }) part.isAbandoned = true;
  talk.live.clear();
  if (steer) add(turn, { type: "steer", text: steer });
  else say(turn, why === "server_gone" ? "The server was gone: the answer begins anew." : "The answer begins anew.");
}

function setPlan(turn, units) {
  const known = lastOf(turn, (part) => part.type === "plan");
  if (known) known.units = units;
  else add(turn, { type: "plan", units });
}

function propose(talk, { path, unit, diff, problems = [] }, turn) {
  talk.live.delete(path);
  if (!turn) return;
  let part = editOf(turn, path);
  if (!part) add(turn, (part = { type: "edit", path, unit, lines: "", text: "" }));
  Object.assign(part, { unit, diff, problems });
}

function apply(talk, { path, diff, entry }, turn) {
  let part = editOf(turn, path);
  if (!part || (part.entry ?? entry) !== entry) add(turn, (part = { type: "edit", path, unit: "", lines: "", text: "" })); // a model with tools writes a file several times
  Object.assign(part, { diff, entry, outcome: "applied" });
  talk.undone.delete(entry);
}

function editOf(turn, path) {
  return lastOf(turn, (part) => part.type === "edit" && part.path === path && !part.isAbandoned);
}

function lastOf(turn, fits) {
  return turn?.parts.findLast(fits);
}

function takeStep(turn, step) {
  if (!turn) return;
  switch (step.type) {
    case "text.delta":
      return grow(turn, "answer", step.text);
    case "tool.started":
      return add(turn, { type: "tool", id: step.call_id, tool: step.tool, title: step.title, status: "running" });
    case "tool.ended": {
      const part = lastOf(turn, (each) => each.type === "tool" && each.id === step.call_id);
      if (part) Object.assign(part, { status: step.status, summary: step.summary, seconds: step.seconds });
      return undefined;
    }
    case "plan.updated": {
      const part = lastOf(turn, (each) => each.type === "todo");
      if (part) part.steps = step.steps;
      else add(turn, { type: "todo", steps: step.steps });
      return undefined;
    }
    case "files.written":
      return add(turn, { type: "edit", path: step.paths.join(", "), unit: "", text: "", diff: step.diff, entry: step.entry, outcome: "applied" });
    case "task.steered":
      return add(turn, { type: "steer", text: step.text });
    default:
      return undefined;
  }
}

function rewind(talk, { turn: number, is_talk, is_code, paths = [], entries = [] }) {
  for (const entry of entries) talk.undone.add(entry);
  if (is_talk) talk.turns = talk.turns.filter((turn) => turn.number < number);
  const last = talk.turns[talk.turns.length - 1];
  if (is_code && paths.length) say(last, `Old contents again: ${paths.join(", ")}`);
  for (const turn of talk.turns) turn.version += 1;
}

function mark(talk, entries, isUndone, turn, text) {
  for (const entry of entries) {
    if (isUndone) talk.undone.add(entry);
    else talk.undone.delete(entry);
  }
  for (const each of talk.turns) each.version += 1;
  say(turn, text);
}

function testedInWords({ passed, tried, why_not = "", output = "" }) {
  if (!tried) return `Tests not run: ${why_not}`;
  return passed ? `Tests passed; ${tried} tried.` : `Tests failed; ${tried} tried. ${output}`;
}
