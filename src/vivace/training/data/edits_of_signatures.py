"""Exact requests about parameters: names, defaults, guards, hints.

Owns their wordings and targets. What is asked of a body alone is `edits_of_bodies`.
"""

import ast
import random
from collections.abc import Iterator

from vivace.training.data.bugs import Function
from vivace.training.data.exact import Exact, Lines, Span, indent, plain_arguments, span, statements

_NAMES = {"s": "text", "x": "value", "n": "count", "d": "mapping", "lst": "items", "f": "file", "k": "key"}
_NAMES |= {"v": "value", "i": "index", "a": "first", "b": "second", "obj": "target", "data": "payload"}
_NAMES |= {"value": "number", "text": "content", "name": "label", "path": "location", "key": "field"}
_HINTS = frozenset({"int", "str", "float", "bool", "bytes", "list", "dict", "tuple", "set", "None", "object"})


def _rename(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield another name for a parameter or a local name."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    used = {each.id for each in names} | {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    inner = [each for each in ast.walk(node) if isinstance(each, (ast.Lambda, Function))]
    if len(inner) > 1 or any(isinstance(each, ast.JoinedStr) for each in ast.walk(node)):
        return
    parameters = {each.arg: each for each in plain_arguments(node)}
    local = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    for old in sorted((parameters.keys() | local) - {"_"}):
        new = _NAMES.get(old) or f"{chance.choice(['input', 'new', 'given', 'current'])}_{old.strip('_')}"
        if new in used or old in (ast.get_docstring(node) or "").split():
            continue
        spans = [span(each, new) for each in names if each.id == old]
        what = "variable"
        if (argument := parameters.get(old)) is not None:
            what = "parameter"
            spans.append(Span(argument.lineno, argument.col_offset, argument.col_offset + len(old), new))
        wordings = (
            f"Rename the {what} {old} to {new}.",
            f"rename {old} to {new} in {{name}}",
            f"In {{name}}, call the {what} `{new}` instead of `{old}`.",
        )
        yield Exact(lines.text, lines.replaced(spans), wordings)


def _rename_function(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    new = f"{chance.choice(['get', 'compute', 'make', 'do'])}_{node.name.strip('_')}"
    own = [each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == node.name]
    line = lines.text[node.lineno - lines.first]
    at = line.find(f"def {node.name}")
    if at >= 0:
        start = at + len("def ")
        spans = [*(span(each, new) for each in own), Span(node.lineno, start, start + len(node.name), new)]
        wordings = (f"Rename {{name}} to {new}.", f"call {{name}} {new} instead", f"rename {{name}} → {new}")
        yield Exact(lines.text, lines.replaced(spans), wordings)


def _default(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield another default, or a first one for the last parameter."""
    arguments = node.args.args
    for argument, value in zip(
        arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True
    ):
        if not isinstance(value, ast.Constant) or value.lineno != value.end_lineno:
            continue
        if new := _another(value.value, chance):
            wordings: tuple[str, ...] = (
                f"Change the default of {argument.arg} to {new}.",
                f"{{name}}: {argument.arg} should be {new} by default",
                f"The default of `{argument.arg}` in {{name}} should be {new}, not {ast.unparse(value)}.",
            )
            yield Exact(lines.text, lines.replaced([span(value, new)]), wordings)
    rest = node.args
    if not rest.defaults and not (rest.vararg or rest.kwarg or rest.kwonlyargs) and plain_arguments(node):
        last = arguments[-1]
        if last.lineno == last.end_lineno and last.annotation is None:
            new = chance.choice(["None", "0", "''", "()"])
            wordings = (
                f"Make {last.arg} optional, with {new} as its default.",
                f"{{name}} should have {new} as default for {last.arg}",
            )
            yield Exact(lines.text, lines.replaced([span(last, f"{last.arg}={new}")]), wordings)


def _another(value: object, chance: random.Random) -> str:
    if value is None:
        return "0"
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, (int, float)):
        return str(value + chance.choice([1, 2, 5, 10]))
    return repr(chance.choice(["utf-8", "-", "default", "", "auto", ","])) if isinstance(value, str) else ""


def _literal(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield a parameter in place of a number or text that stands once in the body."""
    rest = node.args
    if rest.vararg or rest.kwarg or rest.kwonlyargs or not rest.args:
        return
    ends: list[ast.arg | ast.expr] = [*rest.args, *rest.defaults]
    last = max(ends, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))
    constants = [
        each for part in statements(node) for each in ast.walk(part) if isinstance(each, ast.Constant)
    ]
    for each in constants:
        value = each.value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value not in (0, 1)
        is_text = isinstance(value, str) and 0 < len(value) < 12 and value.isprintable()
        if not (is_number or is_text) or not lines.of(each) or lines.of(each)[0] in "fFbB":
            continue
        if sum(other.value == value for other in constants) != 1:
            continue
        name = chance.choice(
            ["limit", "size", "factor", "threshold"]
            if is_number
            else ["separator", "mark", "prefix", "label"]
        )
        if any(isinstance(other, ast.Name) and other.id == name for other in ast.walk(node)) or any(
            a.arg == name for a in rest.args
        ):
            continue
        said, end = lines.of(each), last.end_col_offset or 0
        spans = [span(each, name), Span(last.end_lineno or last.lineno, end, end, f", {name}={said}")]
        wordings = (
            f"Add a parameter {name} with the default {said} and use it instead of the hard-coded {said}.",
            f"{{name}} should take `{name}` (default {said}) instead of always using {said}",
            f"Turn the {said} in {{name}} into a parameter called {name}, with {said} as its default.",
        )
        yield Exact(lines.text, lines.replaced(spans), wordings)


def _guard(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield a check of a parameter at the beginning: an error, or an early return."""
    first = statements(node)[0]
    for argument in plain_arguments(node):
        name = argument.arg
        condition, said = chance.choice(
            [(f"{name} is None", "is None"), (f"not {name}", "is empty"), (f"{name} < 0", "is negative")]
        )
        raises = chance.random() < 0.6
        if raises:
            message = f"{name} must not be {said.removeprefix('is ')}"
            new = f'raise ValueError("{message}")'
            wordings: tuple[str, ...] = (
                f'Raise ValueError("{message}") if {name} {said}.',
                f'{{name}} should raise a ValueError with the message "{message}" when {name} {said}',
                f'At the beginning of {{name}}, check {name}: if it {said}, raise ValueError("{message}").',
            )
        else:
            value = chance.choice(["None", "0", "[]", "False", '""'])
            new = f"return {value}"
            wordings = (
                f"Return {value} if {name} {said}.",
                f"when {name} {said}, {{name}} should return {value} at once",
                f"{{name}} must return {value} early if {name} {said}",
            )
        pad = indent(first)
        if first.lineno > node.lineno:
            after = lines.inserted(first.lineno, [f"{pad}if {condition}:", f"{pad}    {new}"])
            yield Exact(lines.text, after, wordings)


def _hints(node: Function, lines: Lines, _chance: random.Random) -> Iterator[Exact]:
    """Yield hints that were taken away, if each is a plain type."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    hinted = [(each, each.annotation) for each in every if each.annotation is not None]
    known = [hint for _, hint in hinted] + ([node.returns] if node.returns is not None else [])
    words = {each.id for hint in known for each in ast.walk(hint) if isinstance(each, ast.Name)}
    if not hinted or node.returns is None or not words <= _HINTS or any(not lines.of(each) for each in known):
        return
    spans = []
    for argument, hint in hinted:
        start = argument.col_offset + len(argument.arg)
        line, end = lines.text[argument.lineno - lines.first], hint.end_col_offset or 0
        if line[end:].startswith(" = "):
            spans.append(Span(argument.lineno, start, end + 3, "="))
        else:
            spans.append(Span(argument.lineno, start, end, ""))
    line = lines.text[node.returns.lineno - lines.first]
    arrow = line.rfind("->", 0, node.returns.col_offset)
    if arrow > 0:
        spans.append(
            Span(node.returns.lineno, len(line[:arrow].rstrip()), node.returns.end_col_offset or 0, "")
        )
        wordings = (
            "Add type hints to {name}.",
            "annotate {name}",
            "Add types to the parameters and the result of {name}.",
        )
        yield Exact(lines.replaced(spans), lines.text, wordings)


def _keyword_only(node: Function, lines: Lines, _chance: random.Random) -> Iterator[Exact]:
    rest = node.args
    if rest.vararg or rest.kwonlyargs or not rest.defaults or len(rest.args) < 2:
        return
    last = rest.args[-1]
    spans = [Span(last.lineno, last.col_offset, last.col_offset, "*, ")]
    wordings = (f"Make {last.arg} keyword-only.", f"{last.arg} of {{name}} should be given by keyword only")
    yield Exact(lines.text, lines.replaced(spans), wordings)


EDITS_OF_SIGNATURES = (_rename, _rename_function, _default, _literal, _guard, _guard, _hints, _keyword_only)
