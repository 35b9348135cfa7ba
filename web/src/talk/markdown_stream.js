// Markdown that is still being written: blocks that are whole are parsed once, only the growing one again.
// Owns the cut between the two. Uses marked's lexer alone: no HTML is ever made of it (`markdown` draws the tokens).

import { Lexer } from "marked";

const CHUNK_LINES = 16; // a growing code block is laid out again from its last chunk on only
const LONGEST_LINE = 5_000; // characters of a line of code that are drawn
const MOST_ITEMS = 16; // of a list that grows: more of them are parsed once, too
const LONGEST_GROWING = 6_000; // characters of a paragraph that grows
const DEEPEST = 12; // markers at the beginning of a line; more are no text of a person's
const OPEN_FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)\n/;
const MANY_MARKERS = new RegExp(`^(?:[ \\t]*(?:[>*+-]|\\d{1,9}[.)])){${DEEPEST},}`, "m");
const lexer = { gfm: true, breaks: false };

/** The text of a code block in chunks of lines, so that what stands is never touched again. */
export class CodeLines {
  chunks = [""]; // as they are drawn: very long lines are cut
  #lines = []; // as they were written

  add(line) {
    if (this.#lines.length && this.#lines.length % CHUNK_LINES === 0) this.chunks.push("");
    this.#lines.push(line);
    this.chunks[this.chunks.length - 1] += `${shortLine(line)}\n`;
  }

  get text() {
    return this.#lines.map((line) => `${line}\n`).join("");
  }
}

/** Return as much of a line as is drawn. */
export function shortLine(line) {
  return line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)} … (${line.length - LONGEST_LINE} more characters)` : line;
}

export class MarkdownStream {
  text = ""; // all that came, as it was written
  blocks = []; // whole ones: {token} of marked, or {code, language}
  #waiting = ""; // what came and is not parsed yet
  #tail = ""; // the text behind the blocks, of which nothing is certain yet
  /** @type {{ code: CodeLines, language: string, marks: string } | null} the code block that the tail is in */
  #code = null;
  growing = []; // blocks of the tail, as it would be if nothing more came

  feed(delta) {
    this.text += delta;
    this.#waiting += delta;
  }

  /** Whether there is text that `settle` has left for the next frame. */
  get isBehind() {
    return this.#waiting !== "";
  }

  /** Parse what has come, or this many characters of it. Call it once a frame at most. */
  settle(most = Infinity) {
    if (!this.#waiting) return;
    let end = Math.min(most, this.#waiting.length);
    if (end < this.#waiting.length && /[\uD800-\uDBFF]/.test(this.#waiting[end - 1])) end += 1; // half of a character
    this.#tail += this.#waiting.slice(0, end);
    this.#waiting = this.#waiting.slice(end);
    this.#read();
  }

  #read() {
    while (this.#code ? this.#readCode(this.#code) : this.#openCode());
    if (this.#code) this.growing = [{ ...this.#code, partial: this.#tail, isOpen: true }];
    else this.#readText();
  }

  #openCode() {
    const fence = OPEN_FENCE.exec(this.#tail);
    if (!fence) return false;
    const [all, marks, info] = fence;
    this.#code = { code: new CodeLines(), language: info.trim().split(/\s/)[0].toLowerCase(), marks };
    this.#tail = this.#tail.slice(all.length);
    return true;
  }

  /** Take whole lines into the code block. Return whether it was closed. */
  #readCode({ code, language, marks }) {
    let from = 0;
    for (let end; (end = this.#tail.indexOf("\n", from)) >= 0; from = end + 1) {
      const line = this.#tail.slice(from, end);
      if (isClosing(line, marks)) {
        this.blocks.push({ code, language });
        this.#code = null;
        this.#tail = this.#tail.slice(end + 1).replace(/^\n+/, "");
        return true;
      }
      code.add(line);
    }
    this.#tail = this.#tail.slice(from);
    return false;
  }

  /** Keep all blocks but the last, which may still grow: a list goes on behind an empty line. */
  #readText() {
    const tokens = tokensOf(this.#tail).flatMap(inParts);
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    const whole = tokens.slice(0, Math.max(last, 0));
    for (const token of whole) if (token.type !== "space") this.blocks.push(blockOf(token));
    this.#tail = this.#tail.slice(whole.reduce((length, token) => length + token.raw.length, 0));
    this.growing = tokens.slice(Math.max(last, 0)).filter(({ type }) => type !== "space").map(blockOf);
    if (whole.length && OPEN_FENCE.test(this.#tail)) this.#read(); // a code block has begun: read it as one
  }
}

/** Return the blocks of a text that is whole. */
export function blocksOf(text) {
  const stream = new MarkdownStream();
  stream.feed(text.endsWith("\n") ? text : `${text}\n`);
  stream.settle();
  return [...stream.blocks, ...stream.growing];
}

function isClosing(line, marks) {
  const found = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line);
  return found !== null && found[1][0] === marks[0] && found[1].length >= marks.length;
}

function blockOf(token) {
  return token.type === "code" ? codeBlock(token) : { token };
}

const codeBlocks = new WeakMap(); // token → block: one inside of a list is asked for again and again
/** Return the block for marked's token of code. */
export function codeBlock(token) {
  if (!codeBlocks.has(token)) codeBlocks.set(token, makeCodeBlock(token));
  return codeBlocks.get(token);
}

function makeCodeBlock(token) {
  const code = new CodeLines();
  for (const line of token.text.split("\n")) code.add(line);
  return { code, language: (token.lang ?? "").split(/\s/)[0].toLowerCase() };
}

/** Cut a long list or paragraph, so that only its end is parsed and drawn again. */
function inParts(token) {
  if (token.type === "list" && token.items.length > MOST_ITEMS) {
    const first = token.items.slice(0, -2);
    const raw = first.map((item) => item.raw).join("");
    const start = Number(token.start) + first.length;
    if (token.raw.startsWith(raw)) return [{ ...token, items: first, raw }, { ...token, items: token.items.slice(-2), start, raw: token.raw.slice(raw.length) }];
  }
  if (token.type === "paragraph" && token.raw.length > LONGEST_GROWING) {
    const at = token.raw.lastIndexOf(" ", LONGEST_GROWING - 1) + 1 || LONGEST_GROWING;
    return [token.raw.slice(0, at), token.raw.slice(at)].flatMap((raw) => inParts({ type: "paragraph", raw, text: raw, tokens: Lexer.lexInline(raw, lexer) }));
  }
  return [token];
}

function tokensOf(text) {
  if (MANY_MARKERS.test(text)) return plain(text);
  try {
    const tokens = new Lexer(lexer).lex(text);
    // marked writes tabs and line ends of its own: lengths would be wrong.
    return tokens.reduce((length, { raw }) => length + raw.length, 0) === text.length ? tokens : [joined(tokens, text)];
  } catch {
    return plain(text);
  }
}

function joined(tokens, text) {
  return tokens.length === 1 ? { ...tokens[0], raw: text } : { type: "blocks", raw: text, tokens };
}

function plain(text) {
  return [{ type: "text", raw: text, text }];
}
