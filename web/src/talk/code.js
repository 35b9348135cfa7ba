// A block of code in the talk: its lines in chunks, coloured when the languages are there, and a button that copies it.
// Owns how it is drawn. The colours come from CodeMirror's parsers (`files/languages`), which are loaded when first needed.

import { html } from "../html.js";
import { memo } from "../shell/memo.js";
import { shown } from "../shell/text.js";
import { Copy } from "../shell/copy.js";
import { useHighlighter } from "../files/highlighting.js";

const LONGEST_LINE = 5_000;

export function Code({ code, language = "", partial = "", isOpen = false }) {
  const highlighter = useHighlighter(language);
  const last = code.chunks.length - 1;
  return html`<figure class="code">
    <figcaption><span>${shown(language) || "text"}</span>${!isOpen && html`<${Copy} text=${() => code.text} />`}</figcaption>
    <pre tabindex="0"><code>${code.chunks.map(
      (text, n) => html`<${Chunk} key=${n} text=${n === last ? text + partial : text} highlighter=${highlighter} />`,
    )}</code></pre>
  </figure>`;
}

const Chunk = memo(
  ({ text, highlighter }) => {
    const cut = withShortLines(text);
    return html`<span class="chunk">${highlighter ? highlighter(cut).map(([piece, style]) => (style ? html`<span class=${style}>${shown(piece)}</span>` : shown(piece))) : shown(cut)}</span>`;
  },
  (before, after) => before.text === after.text && before.highlighter === after.highlighter,
);

function withShortLines(text) {
  if (text.length <= LONGEST_LINE) return text;
  const short = (line) =>
    line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)} … (${line.length - LONGEST_LINE} more characters)` : line;
  return text.split("\n").map(short).join("\n");
}
