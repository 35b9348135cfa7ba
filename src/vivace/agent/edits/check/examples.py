"""Examples that a person wrote down, as checks of a candidate: doctests, and calls with their results.

Owns reading them out of an instruction or a docstring. Does not run them (`trial`).
"""

import ast
import doctest
import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_EXAMPLES = 12
MAX_TEXT = 20_000
# What may stand between a call and its result.
_RESULT = re.compile(
    r"""\s*(?:==+>?|[-=]+>|➞|→|⇒|↦|=|\#\s*(?:=>|->|returns?:?)|(?:should|must|will|would)\s+(?:return|be|give|equal|produce)
    |(?:is|are)\s+(?:equal\s+to\s+)?|returns?:?|gives?|evaluates?\s+to|yields?|outputs?:?)\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_GOES_ON = re.compile(r"[\w(]|\.\w|\s*[-+*/%=<>]")  # behind a value: it is not all of the result


@dataclass(frozen=True)
class Example:
    """A call and what it should give, both Python expressions."""

    call: str
    expected: str


def find_examples(text: str, names: Iterable[str]) -> list[Example]:
    """Return the examples in a text that call one of the names."""
    text = text[:MAX_TEXT]
    wanted = set(names)
    found = [each for each in _doctests(text) if _called(each.call) & wanted]
    plain = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(">>>"))
    for name in sorted(wanted):
        found += _calls(plain, name)
    return list(dict.fromkeys(found))[:MAX_EXAMPLES]


def _doctests(text: str) -> list[Example]:
    try:
        parsed = doctest.DocTestParser().get_examples(text)
    except ValueError:  # prompts that are indented unevenly
        return []
    found = []
    for example in parsed:
        call, want = example.source.strip(), example.want.strip()
        if want and _is_expression(call) and _is_value(want):
            found.append(Example(call, want))
    return found


def _calls(text: str, name: str) -> list[Example]:
    """Return `name(…) == value` and its like: `->`, `returns`, `should be`, and so on."""
    found = []
    for begin in re.finditer(rf"(?<![\w.]){re.escape(name)}\(", text):
        end = _closing(text, begin.end() - 1)
        if end is None or not _is_expression(call := text[begin.start() : end]):
            continue
        said = _RESULT.match(text, end)
        value = said and _value_at(text[said.end() :].split("\n", 1)[0])
        if value and _has_constant_arguments(call):
            found.append(Example(call, value))
    return found


def _closing(text: str, opened: int) -> int | None:
    """Return the place behind the bracket that closes the one at `opened`, strings skipped."""
    depth, quote, at = 0, "", opened
    while at < min(len(text), opened + 2000):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return None


def _value_at(line: str) -> str:
    """Return the longest beginning of a line that is a constant, unless it goes on as a calculation."""
    line = line.strip().strip("`").rstrip(".,;")
    for end in range(min(len(line), 500), 0, -1):
        if not line[end - 1].isspace() and line[end - 1] != "," and _is_value(line[:end]):
            return "" if _GOES_ON.match(line, end) else line[:end]
    return ""


def _is_value(text: str) -> bool:
    try:
        ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _has_constant_arguments(call: str) -> bool:
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call):
        return False
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    return all(_is_value(ast.unparse(value)) for value in values)


def _called(expression: str) -> set[str]:
    nodes = ast.walk(ast.parse(expression, mode="eval"))
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
