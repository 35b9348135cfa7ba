// A button that copies a text.

import { useState } from "preact/hooks";
import { html } from "../html.js";

export function Copy({ text }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setDone("copied");
    } catch {
      setDone("not allowed");
    }
    setTimeout(() => setDone(""), 1500);
  };
  return html`<button class="quiet" onClick=${copy} aria-label="Copy"><span aria-live="polite">${done || "copy"}</span></button>`;
}
