// Another folder to work in.

import { useState } from "preact/hooks";
import { change, changeFolder, state } from "../app.js";
import { html } from "../html.js";
import { Dialog } from "./dialog.js";

export function FolderDialog() {
  const [path, setPath] = useState(state.welcome?.folder ?? "");
  const close = () => change({ dialog: "" });
  const open = async (event) => {
    event.preventDefault();
    if (await changeFolder(path.trim())) close();
  };
  return html`<${Dialog} label="Open a folder" close=${close} className="finder">
    <form onSubmit=${open}><input aria-label="Folder" placeholder="/path/of/a/folder, or ~" value=${path} onInput=${(event) => setPath(event.target.value)} spellcheck="false" autocomplete="off" ref=${(element) => element?.focus()} /></form>
    <p class="dim pad">Files and new conversations are there from now on. Enter opens it.</p>
  <//>`;
}
