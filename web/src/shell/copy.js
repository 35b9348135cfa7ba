// Copying a text: a button, and the word that it was done.

import { useState } from "preact/hooks";
import { notify } from "../app.js";
import { html } from "../html.js";

/** A button that copies `text()`. `label` says to a screen reader what is copied. */
export function Copy({ text, label, words = "copy" }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    setDone((await isCopied(text())) ? "copied" : "not allowed");
    setTimeout(() => setDone(""), 1500);
  };
  return html`<button class="quiet" onClick=${copy} aria-label=${label} title=${label}>${done || words}</button><span class="hidden" role="status">${done}</span>`;
}

/** Copy a text and say so: "The answer was copied as Markdown." */
export async function copyAndSay(text, what) {
  if (await isCopied(text)) notify(`${what} was copied as Markdown.`);
  else notify("The browser did not allow copying.", { isError: true });
}

async function isCopied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
