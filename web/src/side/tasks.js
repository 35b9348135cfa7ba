// Background tasks: how far each is, its log and its changes; steered, stopped, resumed, answered, taken over. Read again every
// two seconds while it is looked at.

import { useEffect, useState } from "preact/hooks";
import { change, isRead, link, noteAsked, notify, request, state } from "../app.js";
import { html } from "../html.js";
import { count, duration, plural, shown } from "../shell/text.js";
import { useValue } from "../store.js";
import { Asked } from "../talk/questions.js";
import { Rows, rowsOf } from "../talk/diff.js";
import { PageBar } from "../shell/page_bar.js";

const EVERY_MS = 2000;
const MOST_LINES = 400;
/**
 * @typedef {{ task: string, instruction: string, status: string, last: string, text: string, model: string, turns: number, tokens: number,
 *   seconds: number, is_taken?: boolean, asked?: { title: string, shown?: string, digest?: string, reason: string } | null }} TaskRow
 */
export const tasks = { rows: /** @type {TaskRow[]} */ ([]), chosen: "", version: 0 };

/** Call `read` now and every two seconds, as long as the component is there and the page can be seen. */
function useRepeated(read, dependencies) {
  useEffect(() => {
    let isGone = false;
    let timer = 0;
    const again = async () => {
      if (!document.hidden && state.connection === "connected") await read(() => isGone);
      if (!isGone) timer = setTimeout(again, EVERY_MS);
    };
    again();
    return () => ((isGone = true), clearTimeout(timer));
  }, dependencies);
}

async function listTasks() {
  const answer = await link.call("tasks.list").catch(() => null);
  if (!answer) return;
  tasks.rows = answer.tasks;
  tasks.version += 1;
  change({});
}

export function TaskList() {
  useValue(() => `${tasks.version} ${tasks.chosen}`);
  const [text, setText] = useState("");
  useRepeated(listTasks, []);
  const begin = async (event) => {
    event.preventDefault();
    const started = text.trim() && (await request("tasks.start", { instruction: text.trim(), conversation: state.talk.id }));
    if (!started) return;
    setText("");
    choose(started.task);
  };
  return html`<form class="search" onSubmit=${begin}><input placeholder="a task for the background" aria-label="A task for the background" value=${text} onInput=${(event) => setText(event.target.value)} /></form>
    <ul class="rows-list" aria-label="Background tasks">
      ${tasks.rows.map((row) => html`<li key=${row.task} class=${`row-item ${row.task === tasks.chosen ? "current" : ""}`}><button class="row-main" onClick=${() => choose(row.task)}>
        <span class="row-title"><i class=${`dot ${row.status}`} aria-hidden="true"></i><bdi>${shown(row.instruction)}</bdi></span>
        <span class="row-sub">${row.status} · ${shown(row.last || plural(row.turns, "turn"))}</span></button></li>`)}
    </ul>
    ${!tasks.rows.length && html`<p class="dim pad">No task runs. A task works on a copy of the folder while you go on.</p>`}`;
}

function choose(task) {
  tasks.chosen = task;
  change({ pane: "talk" });
}

export function TaskPage() {
  useValue(() => `${tasks.version} ${tasks.chosen}`);
  const row = tasks.rows.find((each) => each.task === tasks.chosen) ?? tasks.rows[0];
  if (!row) return html`<section class="page" aria-label="Tasks"><${PageBar} /><p class="dim">Nothing works in the background.</p></section>`;
  return html`<section class="page" aria-label="Tasks"><${PageBar} /><${Task} key=${row.task} row=${row} /></section>`;
}

function Task({ row }) {
  const [text, setText] = useState("");
  const act = async (operation, args = {}, done = "") => {
    if ((await request(operation, { task: row.task, ...args })) === null) return;
    if (done) notify(done);
    listTasks();
  };
  if (row.asked) noteAsked(row.asked);
  const answer = (is_allowed) => {
    if (row.asked && (!is_allowed || isRead(row.asked))) act("tasks.answer", { is_allowed, digest: row.asked.digest ?? "" });
  };
  const isOver = !["queued", "running", "waiting"].includes(row.status);
  const tell = (event) => {
    event.preventDefault();
    if (text.trim()) act(isOver ? "tasks.resume" : "tasks.steer", { text: text.trim() });
    setText("");
  };
  const take = async () => {
    await act("tasks.take", { conversation: state.talk.id });
    change({ view: "talks", pane: "talk" });
  };
  return html`<header class="page-head">
      <h1><bdi>${shown(row.instruction)}</bdi></h1>
      <p class="dim"><i class=${`dot ${row.status}`}></i> ${row.status} · ${shown(row.model)} · ${plural(row.turns, "turn")} · ${count(row.tokens)} tokens · ${duration(row.seconds * 1000)}</p>
      <div class="choices wide">
        ${isOver ? html`<button onClick=${() => act("tasks.resume")}>Go on</button>` : html`<button class="stop" onClick=${() => act("tasks.stop")}>Stop</button>`}
        <button class="primary" onClick=${take} disabled=${row.is_taken}>${row.is_taken ? "Taken over" : "Take its changes over"}</button>
      </div>
    </header>
    ${row.asked && html`<section class="question" role="alertdialog" aria-label="May this run?"><header><strong>May this run?</strong></header><${Asked} text=${row.asked.shown || row.asked.title} /><p class="dim">${shown(row.asked.reason)}</p>
      <div class="choices wide"><button class="primary" onClick=${() => answer(true)}>Allow</button><button onClick=${() => answer(false)}>Refuse</button></div></section>`}
    <form class="inline" onSubmit=${tell}><input aria-label="Tell the task something" placeholder=${isOver ? "what more to do" : "tell it something"} value=${text} onInput=${(event) => setText(event.target.value)} /></form>
    ${row.text && html`<p class="last-words" dir="auto">${shown(row.text)}</p>`}
    <${TaskDiff} task=${row.task} turns=${row.turns} status=${row.status} />
    <${TaskLog} task=${row.task} />`;
}

function TaskDiff({ task, turns, status }) {
  const [diff, setDiff] = useState("");
  useEffect(() => {
    link.call("tasks.diff", { task }).then((answer) => setDiff(answer.text), () => setDiff(""));
  }, [task, turns, status]);
  return diff ? html`<section><h2>Changes</h2><${Rows} rows=${rowsOf(diff)} /></section>` : null;
}

function TaskLog({ task }) {
  const [lines, setLines] = useState(/** @type {Line[]} */ ([]));
  useRepeated(
    (() => {
      let after = 0;
      return async (isGone) => {
        const answer = await link.call("tasks.log", { task, after }).catch(() => null);
        if (!answer || isGone() || !answer.lines.length) return;
        after = answer.next;
        setLines((known) => [...known, ...answer.lines].slice(-MOST_LINES));
      };
    })(),
    [task],
  );
  const drawn = lines.map(inWords).filter((each) => each !== null);
  return html`<section><h2>Log</h2><ol class="log" aria-label="Log" aria-live="off">${drawn.map(([kind, text]) => html`<li class=${kind}><span class="label">${kind}</span><span dir="auto">${shown(text.slice(0, 600))}</span></li>`)}</ol></section>`;
}

/** @typedef {{ type: string, [name: string]: any }} Line of a task's log, as its program wrote it */

/** @param {Line} line @returns {[kind: string, text: string] | null} */
function inWords(line) {
  switch (line.type) {
    case "task.started":
      return ["task", line.task];
    case "task.answered":
      return line.text ? ["model", line.text] : null;
    case "tool.started":
      return ["call", line.title];
    case "tool.ended":
      return ["result", `${line.status}: ${line.summary ?? ""}`];
    case "approval.asked":
      return ["asks", `${line.title}: ${line.reason}`];
    case "files.written":
      return ["wrote", line.paths.join(", ")];
    case "task.steered":
      return ["you", line.text];
    case "workflow.step.began":
      return ["step", line.title];
    case "task.ended":
      return ["end", line.text || line.reason];
    default:
      return null;
  }
}
