"""Exact requests about what a function does: what it returns, catches, prints, compares, and in which form.

Owns their wordings and targets. What is asked of parameters is `edits_of_signatures`.
"""

import ast
import random
from collections.abc import Iterator

from vivace.training.data.bugs import MAKERS, Function
from vivace.training.data.exact import Exact, Lines, indent, only_return, span, statements

_WRAPS = {
    "sorted": ("Return the result sorted.", "{name} should return a sorted list", "sort what {name} returns"),
    "list": ("Return a list.", "{name} should return a list", "convert the result of {name} to a list"),
    "tuple": ("Return a tuple.", "{name} should return a tuple instead"),
    "set": ("Return a set.", "make {name} return a set"),
    "str": ("Return the result as a string.", "{name} should return a string", "convert the result to str"),
    "len": (
        "Return only how many there are: the length of the result.",
        "{name} should return the length of what it returns now",
    ),
    "bool": ("Return True or False only.", "{name} should return a bool"),
    "int": ("Return the result as an int.", "{name} should return an integer: use int()"),
    "abs": (
        "Return the absolute value of the result.",
        "the result of {name} must never be negative: use abs",
    ),
}
_ERRORS = (
    "ValueError",
    "KeyError",
    "TypeError",
    "IndexError",
    "OSError",
    "AttributeError",
    "ZeroDivisionError",
)


def _wrap(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    last = only_return(node)
    if last is None or last.value is None:
        return
    said = lines.of(last.value)
    for name in chance.sample(sorted(_WRAPS), 3):
        if not said.startswith(f"{name}("):
            yield Exact(lines.text, lines.replaced([span(last.value, f"{name}({said})")]), _WRAPS[name])
    digits = chance.choice([1, 2, 3])
    wordings = (
        f"Round the result to {digits} decimals.",
        f"{{name}} should round what it returns to {digits} digits",
    )
    yield Exact(lines.text, lines.replaced([span(last.value, f"round({said}, {digits})")]), wordings)


def _return_both(node: Function, lines: Lines, _chance: random.Random) -> Iterator[Exact]:
    """Yield a second result: a name that the body sets."""
    last = only_return(node)
    if last is None or last.value is None or isinstance(last.value, ast.Tuple):
        return
    said = lines.of(last.value)
    names = {
        target.id
        for each in statements(node)
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for name in sorted(names - {said}):
        wordings = (
            f"Also return {name}: the result is a pair.",
            f"{{name}} should return both {said} and {name}",
            f"return {name} as a second value",
        )
        yield Exact(lines.text, lines.replaced([span(last.value, f"{said}, {name}")]), wordings)


def _print_first(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    last = only_return(node)
    if last is not None and isinstance(last.value, ast.Name) and last.lineno > node.lineno:
        name = last.value.id
        call, word = chance.choice([("print({})", "Print"), ("logging.info({})", "Log with logging.info")])
        wordings = (
            f"{word} {name} before returning it.",
            f"{word.lower()} the result of {{name}} before it is returned",
        )
        yield Exact(lines.text, lines.inserted(last.lineno, [indent(last) + call.format(name)]), wordings)


def _catch(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield a `try` around the whole body."""
    body = statements(node)
    first, last = body[0], body[-1]
    inner = lines.text[first.lineno - lines.first : (last.end_lineno or last.lineno) - lines.first + 1]
    if first.lineno == node.lineno or any(
        '"""' in line or "'''" in line or line.endswith("\\") for line in inner
    ):
        return
    if any(isinstance(each, (ast.Yield, ast.Try)) for each in ast.walk(node)) or len(inner) > 15:
        return
    error, value = chance.choice(_ERRORS), chance.choice(["None", "False", "[]", "0", '""'])
    pad, at = indent(first), first.lineno - lines.first
    new = [f"{pad}try:", *(f"    {line}" if line.strip() else line for line in inner)]
    new += [f"{pad}except {error}:", f"{pad}    return {value}"]
    wordings = (
        f"Catch {error} in {{name}} and return {value}.",
        f"If {error} is raised in {{name}}, return {value} instead.",
        f"wrap the body of {{name}} in try/except {error}, returning {value}",
    )
    yield Exact(lines.text, [*lines.text[:at], *new, *lines.text[at + len(inner) :]], wordings)


def _docstring(node: Function, lines: Lines, _chance: random.Random) -> Iterator[Exact]:
    """Yield a docstring that was taken away; the request says it."""
    said, doc = ast.get_docstring(node), node.body[0]
    if said and "\n" not in said and len(node.body) > 1 and doc.lineno == doc.end_lineno and len(said) < 100:
        at = doc.lineno - lines.first
        wordings = (
            f'Add the docstring "{said}" to {{name}}.'.replace("{said}", said),
            f"{{name}} needs a docstring: {said}",
        )
        yield Exact([*lines.text[:at], *lines.text[at + 1 :]], lines.text, wordings)


def _said_change(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield one line that becomes another, and the request says how: a bug backwards."""
    makers = list(MAKERS)
    chance.shuffle(makers)
    padded = [""] * (lines.first - 1) + lines.text
    for make in makers[:4]:
        for bug in list(make(node, padded))[:3]:
            if bug.drops or not lines.first < bug.line < lines.first + len(lines.text):
                continue
            broken = bug.applied(padded)[lines.first - 1 :]
            old, new = broken[bug.line - lines.first].strip(), lines.text[bug.line - lines.first].strip()
            if old.endswith((",", "(")) or lines.text.count(lines.text[bug.line - lines.first]) != 1:
                continue
            wordings = (
                f"Change `{old.rstrip(':')}` to `{new.rstrip(':')}`.",
                f"In {{name}} it should be `{new.rstrip(':')}`, not `{old.rstrip(':')}`.",
                f"{{name}}: `{old.rstrip(':')}` is wrong, use `{new.rstrip(':')}`",
            )
            yield Exact(broken, lines.text, tuple(each.replace("{name}", "{name}") for each in wordings))


def _fstring(node: Function, lines: Lines, _chance: random.Random) -> Iterator[Exact]:
    """Yield a text that was put together with `format`."""
    for each in ast.walk(node):
        if not isinstance(each, ast.JoinedStr) or not lines.of(each).startswith(('f"', "f'")):
            continue
        inner = [part for part in each.values if isinstance(part, ast.FormattedValue)]
        plain = all(part.format_spec is None and part.conversion == -1 for part in inner)
        if not inner or not plain or '"""' in lines.of(each):
            continue
        quote = lines.of(each)[1]
        text = "".join(
            "{}" if isinstance(part, ast.FormattedValue) else str(getattr(part, "value", ""))
            for part in each.values
        )
        if any(mark in text.replace("{}", "") for mark in "\"'\\{}\n"):
            continue
        old = f"{quote}{text}{quote}.format({', '.join(ast.unparse(part.value) for part in inner)})"
        wordings = (
            "Use an f-string.",
            "Use f-strings in {name}.",
            "replace format() by an f-string in {name}",
        )
        yield Exact(lines.replaced([span(each, old)]), lines.text, wordings)


def _comprehension(node: Function, lines: Lines, chance: random.Random) -> Iterator[Exact]:
    """Yield a loop that becomes a list comprehension, and the other way around."""
    for each in ast.walk(node):
        if (
            not isinstance(each, ast.Assign)
            or not isinstance(each.value, ast.ListComp)
            or each.lineno != each.end_lineno
        ):
            continue
        target, made = each.targets[0], each.value
        if not isinstance(target, ast.Name) or len(made.generators) != 1 or made.generators[0].is_async:
            continue
        loop, pad, name = made.generators[0], " " * each.col_offset, target.id
        inner = pad + "    "
        plain = [f"{pad}{name} = []", f"{pad}for {lines.of(loop.target)} in {lines.of(loop.iter)}:"]
        for test in loop.ifs:
            plain.append(f"{inner}if {lines.of(test)}:")
            inner += "    "
        plain.append(f"{inner}{name}.append({lines.of(made.elt)})")
        at = each.lineno - lines.first
        long = [*lines.text[:at], *plain, *lines.text[at + 1 :]]
        if chance.random() < 0.6:
            wordings = (f"Use a list comprehension for {name}.", "Use a list comprehension in {name}.")
            yield Exact(long, lines.text, wordings)
        else:
            wordings = (
                f"Write the list comprehension of {name} as a for loop.",
                "use a plain loop instead of the list comprehension",
            )
            yield Exact(lines.text, long, wordings)


EDITS_OF_BODIES = (
    *(_wrap, _return_both, _print_first, _catch, _docstring, _said_change, _said_change),
    *(_fstring, _comprehension),
)
