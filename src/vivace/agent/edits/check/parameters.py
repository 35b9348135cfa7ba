"""Where a new parameter of a Python function goes: last, and with a default, so that its callers still fit.

Owns the order and the default, by comparing old and new signatures. What the request says of either goes
first. Touches nothing that it does not understand whole: renamed or removed parameters, comments between
them. Does not rewrite callers (`plan.callers`).
"""

import ast
import io
import itertools
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import PYTHON, Language
from vivace.agent.edits.find.units import Unit

Function = ast.FunctionDef | ast.AsyncFunctionDef
_PARAMETER = r"(?:positional )?(?:param|arg)\w*"
_PLACED = re.compile(  # where the parameter is to stand
    rf"\b(?:first|second|third|leading) {_PARAMETER}\b"
    r"|\b(?:as|at|in) (?:the|its) (?:(?:very )?(?:first|second|third|beginning|start|front))\b"
    rf"|\b{_PARAMETER}\b[^.;\n]{{0,40}}\b(?:before|in front of|ahead of|between)\b",
    re.I,
)
_REQUIRED = re.compile(r"\b(?:required|mandatory|obligatory|(?:without|no) (?:an? )?default)\b", re.I)
_LITERAL = r"`?(-?\d+(?:\.\d+)?|True|False|None|'[^'\n]*'|\"[^\"\n]*\"|\(\)|\[\]|\{\})`?(?!\.?\w)"
_DEFAULT = re.compile(
    rf"\bdefault(?:s|ing)?(?: value)?(?: (?:to|is|of|being))?[ :=]+{_LITERAL}|{_LITERAL},? by default\b"
    rf"|\bby default,? {_LITERAL}"
)


def with_new_parameters_last(
    source: SourceFile, language: Language | None, unit: Unit, new_text: str, instruction: str
) -> str:
    """Return the new text of a unit with parameters that it did not have behind those that it had."""
    if language is not PYTHON or unit.kind not in ("function", "method", "class"):
        return new_text
    old = _functions(source.text_of(unit.first_line, unit.last_line))
    for name in _functions(new_text):  # read anew for each: lines may have changed
        function = _functions(new_text).get(name)
        if function and name in old:
            change = _Change(old[name], function, instruction, _calls_around(source, unit, old[name]))
            new_text = change.applied(new_text)
    return new_text


def _functions(text: str) -> dict[str, Function]:
    """Return the functions and methods of a piece of Python by qualified name; none if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return dict(_walk(ast.parse(_at_margin(text)), ""))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return {}


def _at_margin(text: str) -> str:
    """Return the text so that it parses: one that is indented stands below an `if` on a line of its own."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    return f"if True:\n{text}" if first[:1] in (" ", "\t") else f"\n{text}"


def _walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _walk(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If):
            yield from _walk(child, prefix)


def _calls_around(source: SourceFile, unit: Unit, function: Function) -> int:
    """Return how often the file calls it outside of the unit: those can be rewritten (`plan.callers`)."""
    around = "\n".join((*source.lines[: unit.first_line - 1], *source.lines[unit.last_line :]))
    owner = unit.parent or unit.name
    name = owner.rpartition(".")[2] if function.name == "__init__" else function.name
    return len(re.findall(rf"(?<!def )(?<!class )\b{re.escape(name)}\s*\(", around))


@dataclass(frozen=True)
class _Change:
    """A function before and after, and what was said of it."""

    old: Function
    new: Function
    instruction: str
    calls: int  # in the file, outside of the unit

    def applied(self, text: str) -> str:
        """Return the text with the parameters in order, or as it is if there is nothing to do."""
        added = self._added()
        if not added or not self._keeps_its_order():
            return text
        found = _pieces(text, self.new)
        if found is None:
            return text
        start, end, pieces = found
        wanted = self._ordered(pieces, added)
        if wanted == pieces:
            return text
        changed = text[:start] + _filled(text[start:end], pieces, wanted) + text[end:]
        after = _functions(changed)
        is_same = any(sorted(_names(each)) == sorted(_names(self.new)) for each in after.values())
        return changed if is_same else text

    def _added(self) -> list[str]:
        """Return the new parameters that can be given; none if old ones are gone or in another order."""
        before, now = _names(self.old), _names(self.new)
        kept = [name for name in now if name in before]
        return [name for name in now if name not in before] if kept == before else []

    def _keeps_its_order(self) -> bool:
        """Return whether the function itself, as it is now, would still fit the new order."""
        before = _ordinary(self.old)
        most = len(before) - (before[:1] in (["self"], ["cls"]))
        calls = (node for node in ast.walk(self.new) if isinstance(node, ast.Call))
        own = (call for call in calls if _called(call) == self.new.name)
        return all(len(call.args) <= most for call in own)

    def _ordered(self, pieces: list[str], added: Sequence[str]) -> list[str]:
        """Return the parameters in the order that they should have, with defaults where they need one."""
        known = {_name_of(piece): piece for piece in pieces}
        ordinary = [name for name in _ordinary(self.new) if name in added]
        movable = [] if _PLACED.search(self.instruction) else ordinary
        wanted = [piece for piece in pieces if _name_of(piece) not in movable]
        at = self._end_of_keywords(wanted) if self.old.args.kwonlyargs else self._end_of_ordinary(wanted)
        wanted[at:at] = [known[name] for name in movable]
        default = self._default(added)
        return [
            _with_default(piece, default) if default and _name_of(piece) in added else piece
            for piece in wanted
        ]

    def _end_of_ordinary(self, pieces: Sequence[str]) -> int:
        stars = (index for index, piece in enumerate(pieces) if piece.startswith("*"))
        return next(stars, len(pieces))

    def _end_of_keywords(self, pieces: Sequence[str]) -> int:
        return len(pieces) - (1 if pieces and pieces[-1].startswith("**") else 0)

    def _default(self, added: Sequence[str]) -> str:
        """Return the default of new parameters that have none; "" if they stay without.

        They do where all callers are in this file and will be rewritten, unless the code expects None.
        """
        if _REQUIRED.search(self.instruction):
            return ""
        if said := (_DEFAULT.search(self.instruction) if len(added) == 1 else None):
            return next(group for group in said.groups() if group)
        name = self.old.name
        is_private = name.startswith("_") and not name.endswith("__")
        if self.old.args.defaults or all(self._may_be_none(each) for each in added):
            return "None"
        return "" if self.calls or is_private else "None"

    def _may_be_none(self, name: str) -> bool:
        """Return whether the new code asks if the parameter is there."""
        code = ast.unparse(self.new)
        return (
            re.search(rf"\b{name} is (?:not )?None\b|\bif (?:not )?{name}\b|\b{name} or\b", code) is not None
        )


def _ordinary(function: Function) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)]


def _names(function: Function) -> list[str]:
    return [*_ordinary(function), *(each.arg for each in function.args.kwonlyargs)]


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _name_of(piece: str) -> str:
    """Return the name of an ordinary or keyword-only parameter; "" for `*`, `/` and what takes many."""
    found = re.match(r"[^\W\d]\w*", piece)
    return found[0] if found else ""


def _with_default(piece: str, default: str) -> str:
    bare = ast.parse(f"def f({piece}): pass").body[0]
    assert isinstance(bare, ast.FunctionDef)
    if bare.args.defaults:
        return piece
    return f"{piece} = {default}" if ":" in piece else f"{piece}={default}"


def _pieces(text: str, function: Function) -> tuple[int, int, list[str]] | None:
    """Return where the parameters stand in the text, and each of them; None if that is not plain to see."""
    margin = _at_margin(text)
    starts = [0]
    for line in margin.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    offset = len(margin) - len(text)
    depth, begin, cuts = 0, -1, list[int]()
    try:
        for token in tokenize.generate_tokens(io.StringIO(margin).readline):
            if token.start[0] < function.lineno:
                continue
            at = starts[token.start[0] - 1] + token.start[1] - offset
            if token.type == tokenize.COMMENT and depth:
                return None
            if token.string in ("(", "[", "{"):
                depth += 1
                begin = at + 1 if depth == 1 and begin < 0 else begin
            elif token.string in (")", "]", "}"):
                depth -= 1
                if not depth and begin >= 0:
                    return _split(text, begin, at, cuts, function)
            elif token.string == "," and depth == 1:
                cuts.append(at)
    except (tokenize.TokenError, SyntaxError):
        pass
    return None


def _split(
    text: str, begin: int, end: int, cuts: Sequence[int], function: Function
) -> tuple[int, int, list[str]] | None:
    edges = [begin - 1, *cuts, end]
    parts = [text[one + 1 : two].strip() for one, two in itertools.pairwise(edges)]
    parts = parts[:-1] if parts and not parts[-1] else parts  # a comma behind the last
    is_whole = [name for part in parts if (name := _name_of(part))] == _names(function)
    return (begin, end, parts) if is_whole else None


def _filled(text: str, pieces: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the text between the brackets with other pieces in the same places."""
    found, at = "", 0
    for old, new in zip(pieces, wanted, strict=True):
        start = text.index(old, at)
        found += text[at:start] + new
        at = start + len(old)
    return found + text[at:]
