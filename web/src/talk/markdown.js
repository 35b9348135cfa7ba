// Markdown as elements. Safe by construction: elements are made by name from tokens, text is text, and no HTML is parsed
// anywhere, so what a model or a file says cannot become a script, an image, a frame or a style. Owns what each token looks
// like. A link is shown and opens on a click only; nothing is loaded for it.

import { memo } from "../shell/memo.js";
import { html } from "../html.js";
import { shown } from "../shell/text.js";
import { Code } from "./code.js";
import { codeBlock } from "./markdown_stream.js";

const LONGEST_TEXT = 50_000;
const GROUP = 32; // blocks
const NOTHING = [];
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–" };

/** A block that does not change any more is drawn once. */
export const Block = memo(
  ({ block }) => (block.code ? html`<${Code} ...${block} />` : blockElement(block.token)),
  (before, after) => before.block === after.block,
);

/** Blocks in groups: a group in which nothing grows is passed over as one. A block stays in its group when it is whole. */
export function Markdown({ blocks, growing = [] }) {
  const length = blocks.length + growing.length;
  const groups = [];
  for (let from = 0; from < length; from += GROUP) {
    const to = Math.min(from + GROUP, length);
    groups.push(html`<${Group} key=${from} blocks=${blocks} from=${from} to=${to} growing=${to > blocks.length ? growing : NOTHING} />`);
  }
  return html`<div class="prose">${groups}</div>`;
}

const Group = memo(
  ({ blocks, from, to, growing }) => {
    const drawn = [...blocks.slice(from, to), ...growing.slice(Math.max(0, from - blocks.length), Math.max(0, to - blocks.length))];
    return drawn.map((block, n) => html`<${Block} key=${from + n} block=${block} />`);
  },
  (before, after) => before.blocks === after.blocks && before.to === after.to && before.growing === after.growing,
);

function blockElement(token) {
  switch (token.type) {
    case "heading":
      return html`<${`h${Math.min(6, token.depth + 2)}`}>${inline(token.tokens)}<//>`;
    case "paragraph":
      return html`<p>${inline(token.tokens)}</p>`;
    case "list":
      return list(token);
    case "blockquote":
      return html`<blockquote>${token.tokens.map(blockElement)}</blockquote>`;
    case "table":
      return table(token);
    case "hr":
      return html`<hr />`;
    case "code":
      return html`<${Block} block=${codeBlock(token)} />`;
    case "blocks":
      return token.tokens.map(blockElement);
    case "space":
    case "def":
      return null;
    case "text":
      return html`<p>${token.tokens ? inline(token.tokens) : textOf(token.text)}</p>`;
    default: // html and whatever else: as it was written
      return html`<p class="raw">${textOf(token.raw)}</p>`;
  }
}

function list(token) {
  const items = token.items.map(
    (item) => html`<li class=${item.task ? "task" : ""}>
      ${item.task && html`<input type="checkbox" disabled checked=${item.checked} aria-label="done" />`}
      ${item.tokens.map((each) => (each.type === "text" && !token.loose ? inline(each.tokens ?? [each]) : blockElement(each)))}
    </li>`,
  );
  return token.ordered ? html`<ol start=${Number(token.start) || 1}>${items}</ol>` : html`<ul>${items}</ul>`;
}

function table({ header, rows }) {
  const cells = (row, name) => row.map((cell) => html`<${name} class=${`align-${cell.align ?? "left"}`}>${inline(cell.tokens)}<//>`);
  return html`<div class="table" tabindex="0" role="region" aria-label="table"><table>
    <thead><tr>${cells(header, "th")}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${cells(row, "td")}</tr>`)}</tbody>
  </table></div>`;
}

function inline(tokens = []) {
  return tokens.map((token) => {
    switch (token.type) {
      case "strong":
        return html`<strong>${inline(token.tokens)}</strong>`;
      case "em":
        return html`<em>${inline(token.tokens)}</em>`;
      case "del":
        return html`<del>${inline(token.tokens)}</del>`;
      case "codespan":
        return html`<code>${shown(token.text)}</code>`;
      case "br":
        return html`<br />`;
      case "link":
        return link(token.href, inline(token.tokens));
      case "image":
        return html`<span class="image" title="Images are not loaded.">▧ ${shown(token.text || "image")} (${shown(token.href)})</span>`;
      case "text":
        return token.tokens ? inline(token.tokens) : textOf(token.text);
      case "escape":
        return shown(token.text);
      default:
        return shown(token.raw);
    }
  });
}

/** Return a link where it is one that a browser may follow, and otherwise its text with the address. */
function link(href, children) {
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return html`<span class="link-text">${children} <small>(${shown(href)})</small></span>`;
  return html`<a href=${href} title=${shown(href)} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

function textOf(text) {
  const cut = text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)} … (${text.length - LONGEST_TEXT} more characters)` : text;
  return shown(cut.replace(/&(#x[0-9a-f]{1,6}|#\d{1,7}|[a-z]{2,8});/gi, entity));
}

function entity(all, name) {
  if (name[0] !== "#") return ENTITIES[name] ?? all;
  const point = name[1] === "x" || name[1] === "X" ? parseInt(name.slice(2), 16) : Number(name.slice(1));
  return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : all;
}
