// Markdown that is still being written: blocks that are whole are parsed once, only the growing one again.
// Owns the cut between the two. Uses marked's lexer alone: no HTML is ever made of it (`markdown` draws the tokens).

import { Lexer } from "marked";

const CHUNK_LINES = 64; // a growing code block is laid out again from its last chunk on only
const DEEPEST = 12; // markers at the beginning of a line; more are no text of a person's
const OPEN_FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)\n/;
const MANY_MARKERS = new RegExp(`^(?:[ \\t]*(?:[>*+-]|\\d{1,9}[.)])){${DEEPEST},}`, "m");
const lexer = { gfm: true, breaks: false };

/** The text of a code block in chunks of lines, so that what stands is never touched again. */
export class CodeLines {
  chunks = [""];
  #lines = 0;

  add(line) {
    if (this.#lines && this.#lines % CHUNK_LINES === 0) this.chunks.push("");
    this.#lines += 1;
    this.chunks[this.chunks.length - 1] += `${line}\n`;
  }

  get text() {
    return this.chunks.join("");
  }
}

export class MarkdownStream {
  blocks = []; // whole ones: {token} of marked, or {code, language}
  #tail = ""; // the text behind them, of which nothing is certain yet
  #code = null; // the code block that the tail is in: {code, language, isClosing}
  growing = []; // blocks of the tail, as it would be if nothing more came
  version = 0;
  #isStale = false;

  feed(delta) {
    this.#tail += delta;
    this.#isStale = true;
  }

  /** Parse what has come. Call it once a frame at most. */
  settle() {
    if (!this.#isStale) return this;
    this.#isStale = false;
    this.version += 1;
    while (this.#code ? this.#readCode() : this.#openCode());
    if (this.#code) this.growing = [{ ...this.#code, partial: this.#tail, isOpen: true }];
    else this.#readText();
    return this;
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
  #readCode() {
    const { code, language, marks } = this.#code;
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
    const tokens = tokensOf(this.#tail);
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    const whole = tokens.slice(0, Math.max(last, 0));
    for (const token of whole) if (token.type !== "space") this.blocks.push(blockOf(token));
    this.#tail = this.#tail.slice(whole.reduce((length, token) => length + token.raw.length, 0));
    this.growing = tokens.slice(Math.max(last, 0)).filter(({ type }) => type !== "space").map(blockOf);
    if (whole.length && OPEN_FENCE.test(this.#tail)) {
      this.#isStale = true; // a code block has begun: read it as one
      this.settle();
    }
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
  if (token.type !== "code") return { token };
  const code = new CodeLines();
  for (const line of token.text.split("\n")) code.add(line);
  return { code, language: (token.lang ?? "").split(/\s/)[0].toLowerCase() };
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
