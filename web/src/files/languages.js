// The languages that CodeMirror reads here, by the name in a fence or by the end of a file's name. Python, JavaScript and JSON
// have whole parsers; the others are stream parsers, which are a few kilobytes each.

import { StreamLanguage } from "@codemirror/language";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { c, cpp, java, kotlin } from "@codemirror/legacy-modes/mode/clike";
import { css } from "@codemirror/legacy-modes/mode/css";
import { diff } from "@codemirror/legacy-modes/mode/diff";
import { go } from "@codemirror/legacy-modes/mode/go";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html as xml } from "@codemirror/legacy-modes/mode/xml";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";
import { highlightTree, tagHighlighter, tags } from "@lezer/highlight";

const stream = (mode) => () => StreamLanguage.define(mode);
const MAKERS = {
  python: () => python(),
  javascript: () => javascript({ jsx: true }),
  typescript: () => javascript({ jsx: true, typescript: true }),
  json: () => json(),
  c: stream(c),
  cpp: stream(cpp),
  java: stream(java),
  kotlin: stream(kotlin),
  css: stream(css),
  diff: stream(diff),
  go: stream(go),
  rust: stream(rust),
  shell: stream(shell),
  toml: stream(toml),
  xml: stream(xml),
  yaml: stream(yaml),
};
const NAMES = {
  py: "python", pyi: "python", python3: "python", js: "javascript", mjs: "javascript", cjs: "javascript", jsx: "javascript",
  ts: "typescript", tsx: "typescript", mts: "typescript", jsonl: "json", h: "c", cc: "cpp", cxx: "cpp", hpp: "cpp", hh: "cpp",
  "c++": "cpp", cu: "cpp", kt: "kotlin", scss: "css", patch: "diff", golang: "go", rs: "rust", sh: "shell", bash: "shell",
  zsh: "shell", console: "shell", html: "xml", htm: "xml", svg: "xml", yml: "yaml",
}; // prettier-ignore
const made = new Map();

/** Return the CodeMirror extension for a language, or null. */
export function languageNamed(name) {
  const known = NAMES[name] ?? name;
  if (!Object.hasOwn(MAKERS, known)) return null;
  if (!made.has(known)) made.set(known, MAKERS[known]());
  return made.get(known);
}

export function languageOf(path) {
  return languageNamed(path.slice(path.lastIndexOf(".") + 1).toLowerCase());
}

/** Classes that app.css gives colours: few, so that code stays calm. */
export const classes = tagHighlighter([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword, tags.controlKeyword, tags.definitionKeyword], class: "k" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp, tags.character], class: "s" },
  { tag: [tags.comment, tags.meta, tags.processingInstruction], class: "c" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], class: "n" },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.function(tags.variableName)), tags.function(tags.variableName)], class: "f" },
  { tag: [tags.typeName, tags.className, tags.definition(tags.className), tags.tagName, tags.namespace], class: "t" },
  { tag: [tags.propertyName, tags.attributeName], class: "p" },
  { tag: tags.inserted, class: "ins" },
  { tag: tags.deleted, class: "del" },
]); // prettier-ignore

/** Return a function that cuts code into [text, class] pairs, or null. */
export function highlighter(name) {
  const language = languageNamed(name);
  if (!language) return null;
  const parser = (language.language ?? language).parser;
  return (text) => {
    const pieces = [];
    let at = 0;
    highlightTree(parser.parse(text), classes, (from, to, style) => {
      if (from > at) pieces.push([text.slice(at, from), ""]);
      pieces.push([text.slice(from, to), style]);
      at = to;
    });
    if (at < text.length) pieces.push([text.slice(at), ""]);
    return pieces;
  };
}
