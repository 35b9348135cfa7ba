// A block of code in the talk, and a button that copies it. The frame is preact's; the lines are `CodeView`'s, which touches
// only what is new: a block of a thousand lines grows at the cost of its last chunk. Owns the elements of the lines. Colours
// come later (`colouring`).

import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../html.js";
import { Copy } from "../shell/copy.js";
import { shown } from "../shell/text.js";
import { useHighlighter } from "../files/highlighting.js";
import { counts } from "../store.js";
import { colourSoon, forget, watch } from "./colouring.js";
import { shortLine } from "./markdown_stream.js";

const GROUP_CHUNKS = 8; // app.css knows how high 128 lines are

export function Code({ code, language = "", partial = "", isOpen = false }) {
  const highlighter = useHighlighter(language);
  const host = useRef(/** @type {HTMLElement | null} */ (null));
  const view = useRef(/** @type {CodeView | null} */ (null));
  useLayoutEffect(() => {
    view.current ??= new CodeView(host.current);
    view.current.show(code, partial, highlighter);
  });
  useLayoutEffect(() => () => view.current?.clear(), []);
  return html`<figure class="code">
    <figcaption><span>${shown(language) || "text"}</span>${!isOpen && html`<${Copy} text=${() => code.text} label="Copy the code" />`}</figcaption>
    <pre tabindex="0"><code ref=${host}></code></pre>
  </figure>`;
}

class CodeView {
  #code = null;
  #highlighter = null;
  #chunks = []; // {element, text, highlighter, group}: what `colouring` needs of each
  #groups = []; // {element, chunks, isNear}: what is laid out, or not, as one

  constructor(host) {
    this.host = host;
  }

  /** Show the lines, and what there is of the next one. Only chunks from the last known one on are looked at. */
  show(code, partial, highlighter) {
    if (code !== this.#code) this.clear();
    this.#code = code;
    const last = code.chunks.length - 1;
    for (let n = Math.max(0, this.#chunks.length - 1); n <= last; n += 1) {
      if (n === this.#chunks.length) this.#add();
      this.#draw(this.#chunks[n], code.chunks[n] + (n === last ? shortLine(partial) : ""));
    }
    if (highlighter === this.#highlighter) return;
    this.#highlighter = highlighter;
    for (const chunk of this.#chunks) Object.assign(chunk, { highlighter }), colourSoon(chunk);
  }

  clear() {
    this.#groups.forEach(forget);
    this.host.replaceChildren();
    this.#chunks = [];
    this.#groups = [];
  }

  #add() {
    if (this.#chunks.length % GROUP_CHUNKS === 0) {
      this.#groups.at(-1)?.element.classList.add("whole");
      const group = { element: span("group", this.host), chunks: [], isNear: false };
      this.#groups.push(group);
      watch(group);
    }
    const group = this.#groups[this.#groups.length - 1];
    const chunk = { element: span("chunk", group.element), text: "", highlighter: this.#highlighter, group };
    group.chunks.push(chunk);
    this.#chunks.push(chunk);
  }

  /** Put what is new behind what stands, whether that is coloured already or not. */
  #draw(chunk, text) {
    if (text === chunk.text) return;
    counts.chunks += 1;
    const { element } = chunk;
    if (chunk.text && text.startsWith(chunk.text)) {
      const end = element.lastChild;
      const more = shown(text.slice(chunk.text.length));
      if (end instanceof Text) end.appendData(more);
      else element.append(more);
    } else {
      element.textContent = shown(text);
    }
    chunk.text = text;
    colourSoon(chunk);
  }
}

function span(name, parent) {
  const element = document.createElement("span");
  element.className = name;
  parent.append(element);
  return element;
}
