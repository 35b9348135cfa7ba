// The conversations of this user, from every face: resumed, forked, renamed, deleted, found by words.

import { useEffect, useState } from "preact/hooks";
import { change, deleteTalk, forkTalk, listTalks, openTalk, renameTalk, state } from "../app.js";
import { html } from "../html.js";
import { Icon } from "../shell/icons.js";
import { focusPrompt } from "../shell/keys.js";
import { ago, fileName, plural, shown } from "../shell/text.js";
import { useValue } from "../store.js";

const SEARCH_AFTER_MS = 200;
const EVERY_MS = 3000;

export function Talks() {
  const talks = useValue(() => state.talks);
  const current = useValue(() => state.talk.id);
  const search = useValue(() => state.search);
  useEffect(() => {
    const list = () => document.hidden || state.connection !== "connected" || listTalks();
    const first = setTimeout(list, SEARCH_AFTER_MS);
    const again = setInterval(list, EVERY_MS); // other programs begin conversations, too
    return () => (clearTimeout(first), clearInterval(again));
  }, [search]);
  return html`<div class="search"><input type="search" placeholder="search what was said" aria-label="Search conversations" value=${search} onInput=${(event) => change({ search: event.target.value })} /></div>
    <ul class="rows-list" aria-label="Conversations">
      ${talks.map((row) => html`<${Row} key=${row.conversation} row=${row} isCurrent=${row.conversation === current} />`)}
    </ul>
    ${!talks.length && html`<p class="dim pad">${search.trim() ? "Nothing was found." : "No conversations yet."}</p>`}`;
}

function Row({ row, isCurrent }) {
  const [mode, setMode] = useState(""); // "", rename or delete
  const [title, setTitle] = useState(row.title);
  const open = async () => {
    await openTalk(row.conversation);
    change({ pane: "talk" });
    focusPrompt();
  };
  if (mode === "rename") {
    const save = () => (setMode(""), title.trim() && renameTalk(row.conversation, title.trim()));
    return html`<li class="row-item"><input aria-label="Title" value=${title} onInput=${(event) => setTitle(event.target.value)}
      onKeyDown=${(event) => { if (event.key === "Enter") save(); if (event.key === "Escape") { event.stopPropagation(); setMode(""); } }} ref=${(element) => element?.focus()} onBlur=${save} /></li>`;
  }
  return html`<li class=${`row-item ${isCurrent ? "current" : ""}`}>
    <button class="row-main" onClick=${open} aria-current=${isCurrent ? "true" : undefined}>
      <span class="row-title">${row.is_running && html`<i class="dot running" title="running"></i>`}<bdi>${shown(row.title || "Untitled")}</bdi></span>
      <span class="row-sub">${row.excerpt ? shown(row.excerpt) : `${ago(row.used_at_s)} · ${plural(row.turns, "turn")} · ${shown(fileName(row.folder))}`}</span>
    </button>
    ${mode === "delete"
      ? html`<span class="row-actions open"><button class="danger" onClick=${() => deleteTalk(row.conversation)}>delete for ever</button><button class="quiet" onClick=${() => setMode("")}>no</button></span>`
      : html`<span class="row-actions">
          <${Action} name="rename" label=${`Rename ${row.title}`} run=${() => (setTitle(row.title), setMode("rename"))} />
          <${Action} name="fork" label=${`Fork ${row.title}`} run=${() => forkTalk(row.conversation)} />
          <${Action} name="remove" label=${`Delete ${row.title}`} run=${() => setMode("delete")} />
        </span>`}
  </li>`;
}

function Action({ name, label, run }) {
  return html`<button class="icon" onClick=${run} aria-label=${shown(label)} title=${shown(label)}><${Icon} name=${name} /></button>`;
}
