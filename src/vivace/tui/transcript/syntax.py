"""Colours for code, one line at a time.

Owns a small lexer: comments, strings, keywords, numbers, names that are declared. Its state between two
lines is one value, so a text that grows costs only its new lines, which the libraries for this cannot do
(Pygments begins again at the first line). It is made for reading diffs, not for exact grammar.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from vivace.tui.transcript.spans import Span

State = str  # "" or the delimiter that ends the string or comment which the line begins in


@dataclass(frozen=True)
class Lexer:
    token: re.Pattern[str]
    keywords: frozenset[str]
    closing: dict[str, str]  # what begins text of several lines -> what ends it


_PYTHON = """
and as assert async await break case class continue def del elif else except finally for from global if
import in is lambda match nonlocal not or pass raise return try while with yield None True False self
"""
_CURLY = """
abstract as async await auto bool boolean break byte case catch char chan class const constexpr continue
crate debugger default defer delete do double dyn else enum explicit export extends extern fallthrough
false final finally float fn for friend from func function go goto if impl implements import in inline
instanceof int interface let long loop map match mod module move mut mutable namespace native new nil
null nullptr of operator override package private protected pub public range readonly ref register
return self Self short signed sizeof static string struct super switch synchronized template this throw
throws trait transient true try type typedef typename typeof undefined union unsafe unsigned use using
var virtual void volatile where while with yield
"""
_SHELL = """
case do done elif else esac export fi for function if in local return select set shift source then trap
unset until while
"""

_STRINGS = r""""(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?"""
_NAMES = r"(?P<name>[A-Za-z_$][\w$]*)|(?P<number>\b\d[\w.]*)"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _lexer(comment: str, blocks: dict[str, str], keywords: str, strings: str = _STRINGS) -> Lexer:
    opening = "|".join(re.escape(each) for each in blocks)
    prefix = r"(?:[rRbBfFuU]{0,2})" if '"""' in blocks else ""
    block = f"(?P<block>{prefix}(?:{opening}))|" if blocks else ""
    pattern = rf"(?P<comment>{comment})|{block}(?P<string>{strings})|{_NAMES}|(?P<decorator>^\s*@[\w.]+)"
    return Lexer(re.compile(pattern), _words(keywords), blocks)


_CURLY_LEXER = _lexer(r"//.*", {"/*": "*/", "`": "`"}, _CURLY)
_LEXERS = {
    "python": _lexer(r"#.*", {'"""': '"""', "'''": "'''"}, _PYTHON),
    "curly": _CURLY_LEXER,
    "shell": _lexer(r"(?:^|(?<=\s))#.*", {}, _SHELL),
    "data": _lexer(r"#.*", {}, "true false null yes no on off"),
}
_OF_NAME = {
    **dict.fromkeys(("python", "py", "pyi", "pyw", "python3"), "python"),
    **dict.fromkeys(("bash", "sh", "shell", "zsh", "console"), "shell"),
    **dict.fromkeys(("toml", "yaml", "yml", "ini", "cfg", "json"), "data"),
    **dict.fromkeys(
        _words(
            "js jsx ts tsx mjs cjs javascript typescript java c h cc cpp cxx hpp c++ go rust rs kotlin kt "
            "swift cs css"
        ),
        "curly",
    ),
}
_DECLARING = _words("def class fn func function struct enum trait interface type impl mod")


def lexer_name(language: str) -> str:
    """Return the lexer for a fence's tag or a file's suffix, or "" where there is none."""
    return _OF_NAME.get(language.lower().lstrip("."), "")


@lru_cache(maxsize=8192)
def colour(line: str, state: State, lexer: str) -> tuple[tuple[Span, ...], State]:
    """Return the line in colours, and the state in which the next one begins."""
    if not lexer:
        return (Span(line, "code"),), ""
    rules = _LEXERS[lexer]
    spans: list[Span] = []
    at = 0
    if state:
        at, state = _end_of_block(line, 0, state)
        spans.append(Span(line[:at], "comment" if state == "*/" or line[:at].endswith("*/") else "string"))
    was_declaring = False
    while not state and (found := rules.token.search(line, at)):
        _plain(spans, line[at : found.start()])
        at = found.end()
        kind, text = found.lastgroup or "", found.group()
        if kind == "block":
            closing = next(end for begin, end in rules.closing.items() if text.endswith(begin))
            end, state = _end_of_block(line, at, closing)
            spans.append(Span(text + line[at:end], "comment" if closing == "*/" else "string"))
            at = end
        elif kind == "name":
            spans.append(Span(text, _name_style(text, rules, was_declaring)))
            was_declaring = text in _DECLARING
        else:
            spans.append(Span(text, {"decorator": "keyword"}.get(kind, kind)))
    _plain(spans, line[at:])
    return tuple(spans), state


def _plain(spans: list[Span], text: str) -> None:
    if text:
        spans.append(Span(text, "code"))


def _name_style(name: str, rules: Lexer, was_declaring: bool) -> str:
    if name in rules.keywords:
        return "keyword"
    if was_declaring:
        return "declared"
    return "type" if name[0].isupper() and len(name) > 1 and not name.isupper() else "code"


def _end_of_block(line: str, at: int, closing: str) -> tuple[int, State]:
    """Return where the text of several lines ends in this one, and the state behind it."""
    end = line.find(closing, at)
    return (len(line), closing) if end < 0 else (end + len(closing), "")
