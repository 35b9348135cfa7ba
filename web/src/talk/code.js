// A block of code in the talk: its lines in chunks, coloured when they are seen and the languages are there, and a button that
// copies it. Owns how it is drawn. The colours come from CodeMirror's parsers, which are loaded when first needed.

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { memo } from "../shell/memo.js";
import { shown } from "../shell/text.js";
import { Copy } from "../shell/copy.js";
import { useHighlighter } from "../files/highlighting.js";

const LONGEST_LINE = 5_000;

/** `isFast`: so much text comes that it is coloured later. A coloured chunk has 500 elements, a plain one has one. */
export function Code({ code, language = "", partial = "", isOpen = false, isFast = false }) {
  const highlighter = useHighlighter(language);
  const last = code.chunks.length - 1;
  return html`<figure class="code">
    <figcaption><span>${shown(language) || "text"}</span>${!isOpen && html`<${Copy} text=${() => code.text} />`}</figcaption>
    <pre tabindex="0"><code>${code.chunks.map(
      (text, n) => html`<${Chunk} key=${n} text=${n === last ? text + partial : text} highlighter=${highlighter} isFast=${isFast} />`,
    )}</code></pre>
  </figure>`;
}

const Chunk = memo(
  ({ text, highlighter, isFast }) => {
    const [element, isSeen] = useSeen();
    const coloured = useRef(""); // what stands in colours goes on to
    if (highlighter && isSeen && !isFast) coloured.current = text;
    const cut = withShortLines(text);
    return html`<span class="chunk" ref=${element}>${highlighter && text && coloured.current === text ? pieces(highlighter(cut)) : shown(cut)}</span>`;
  },
  (before, after) => before.text === after.text && before.highlighter === after.highlighter && before.isFast === after.isFast,
);

function pieces(pairs) {
  return pairs.map(([piece, style]) => (style ? html`<span class=${style}>${shown(piece)}</span>` : shown(piece)));
}

function withShortLines(text) {
  if (text.length <= LONGEST_LINE) return text;
  const short = (line) =>
    line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)} … (${line.length - LONGEST_LINE} more characters)` : line;
  return text.split("\n").map(short).join("\n");
}

// ---- whether an element was ever seen ---------------------------------------------------------------------------------

const waiting = new WeakMap(); // element → function
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) waiting.get(target)?.();
});

function useSeen() {
  const element = useRef();
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    const { current } = element;
    const stop = () => observer.unobserve(current);
    waiting.set(current, () => (stop(), setSeen(true)));
    observer.observe(current);
    return stop;
  }, []);
  return [element, isSeen];
}
