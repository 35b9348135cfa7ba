// The app as a whole: side bar, talk, files. Owns the layout and what is started; opened by index.html, or by a webview.

import { render } from "preact";
import { change, dismiss, listTalks, onEvent, openTalk, start, state } from "./app.js";
import { files } from "./files/buffers.js";
import { loadEditor } from "./files/highlighting.js";
import { FilePane, followLive } from "./files/pane.js";
import { QuickOpen, Tree } from "./files/tree.js";
import { html } from "./html.js";
import { ContextDialog } from "./shell/context.js";
import { FolderDialog } from "./shell/folder.js";
import { Icon } from "./shell/icons.js";
import { KeyList, VIEWS, focusPrompt, listenToKeys } from "./shell/keys.js";
import { fileName, shown } from "./shell/text.js";
import { NumbersPage } from "./side/numbers.js";
import { TaskList, TaskPage } from "./side/tasks.js";
import { Talks } from "./side/talks.js";
import { useValue } from "./store.js";
import { nameOf } from "./talk/fold.js";
import { Talk } from "./talk/talk.js";

const NAMES = { talks: "Talks", files: "Files", tasks: "Tasks", numbers: "Numbers" };
const NEXT_THEME = { auto: "dark", dark: "light", light: "auto" };

function App() {
  const view = useValue(() => state.view);
  const pane = useValue(() => state.pane);
  const hasFile = useValue(() => files.active !== "");
  const isTalk = view === "talks" || view === "files";
  return html`<main class=${`app ${hasFile && isTalk ? "with-file" : ""}`} data-pane=${pane === "file" && !hasFile ? "talk" : pane}>
    <h1 class="hidden">Vivace</h1>
    <${SideBar} view=${view} />
    ${view === "tasks" ? html`<${TaskPage} />` : view === "numbers" ? html`<${NumbersPage} />` : html`<${Talk} />`}
    ${isTalk && hasFile && html`<${FilePane} />`}
    <${Dialogs} />
    <${Notices} />
  </main>`;
}

function SideBar({ view }) {
  const folder = useValue(() => state.welcome?.folder ?? "");
  const theme = useValue(() => state.theme);
  const show = (name) => {
    change({ view: name, pane: name === "numbers" ? "talk" : "side" });
    if (name === "talks") listTalks();
  };
  return html`<nav class="side" aria-label="Conversations, files and tasks">
    <header class="brand"><span class="mark" aria-hidden="true"></span><button class="folder-name" title=${`${shown(folder)}: open another folder`} onClick=${() => change({ dialog: "folder" })}><bdi>${shown(fileName(folder)) || "Vivace"}</bdi></button><span class="spacer"></span>
      <button class="icon" aria-label=${`Theme: ${theme}`} title=${`Theme: ${theme}`} onClick=${() => change({ theme: NEXT_THEME[theme] })}><${Icon} name="sun" /></button>
      <button class="icon" aria-label="New conversation" title="New conversation (Alt+N)" onClick=${() => openTalk("").then(() => (change({ view: "talks", pane: "talk" }), focusPrompt()))}><${Icon} name="plus" /></button>
    </header>
    <div class="views" role="tablist" aria-label="Show">${VIEWS.map(
      (name) => html`<button key=${name} role="tab" aria-selected=${view === name} onClick=${() => show(name)}><${Icon} name=${name} /><span>${NAMES[name]}</span></button>`,
    )}</div>
    <div class="side-body">${view === "files" ? html`<${Tree} />` : view === "tasks" ? html`<${TaskList} />` : view === "talks" ? html`<${Talks} />` : html`<p class="dim pad">Speed over the last hour, and results that were kept.</p>`}</div>
    <${Connection} />
  </nav>`;
}

const CONNECTIONS = {
  connecting: "connecting …",
  lost: "The server is gone. It is tried again; nothing that you typed is lost.",
  refused: "The server refused.",
};

function Connection() {
  const connection = useValue(() => state.connection);
  const reason = useValue(() => state.lostReason);
  return html`<div class=${`connection ${connection}`} role="status" aria-live="polite"><i class="dot" aria-hidden="true"></i><span>${CONNECTIONS[connection] ?? "connected"} ${connection !== "connected" && shown(reason)}</span></div>`;
}

function Dialogs() {
  const dialog = useValue(() => state.dialog);
  return { keys: html`<${KeyList} />`, open: html`<${QuickOpen} />`, context: html`<${ContextDialog} />`, folder: html`<${FolderDialog} />` }[dialog] ?? null;
}

function Notices() {
  const notices = useValue(() => state.notices);
  const connection = useValue(() => state.connection);
  return html`<div class="notices" role="status" aria-live="polite">
    ${(connection === "lost" || connection === "refused") && html`<div class="notice error lost">${CONNECTIONS[connection]} <span class="dim">${shown(state.lostReason)}</span></div>`}
    ${notices.map((notice) => html`<div key=${notice.id} class=${`notice ${notice.isError ? "error" : ""}`}><span>${shown(notice.text)} <span class="dim">${shown(notice.hint)}</span></span><button class="quiet" aria-label="Dismiss" onClick=${() => dismiss(notice.id)}>×</button></div>`)}
  </div>`;
}

/** The tab says which conversation it shows, and whether that works or asks something. */
function PageTitle() {
  const title = useValue(() => {
    const { talk, welcome } = state;
    const mark = talk.questions.size ? "? " : talk.isRunning ? "● " : "";
    return `${mark}${talk.turns.length ? nameOf(talk) : "Vivace"} – ${fileName(welcome?.folder ?? "")}`;
  });
  document.title = shown(title);
  return null;
}

function Theme() {
  const theme = useValue(() => state.theme);
  document.documentElement.dataset.theme = theme;
  return null;
}

onEvent(followLive);
listenToKeys();
render(html`<${Theme} /><${PageTitle} /><${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
start();
focusPrompt();
// The editor takes 100 ms to begin: now, while nothing happens, and not in the middle of an answer.
(globalThis.requestIdleCallback ?? setTimeout)(() => loadEditor().catch(() => {}));
