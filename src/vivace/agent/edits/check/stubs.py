"""Overload signatures that follow their implementation: they gain and lose the parameters that it does.

Owns this change of text, where it is unambiguous; other signatures stay as they are, and are returned. Does
not own which lines are signatures (`find.outline`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.edits.check.verify import syntax_problems
from vivace.agent.edits.find.languages import PYTHON, Language
from vivace.agent.edits.find.naming import text_of
from vivace.agent.edits.find.units import Unit

LEFT = "It is not clear where it takes the new parameters of the implementation."
_STARRED = ("list_splat_pattern", "dictionary_splat_pattern", "rest_pattern")


class Followed(NamedTuple):
    new_bytes: bytes
    left: tuple[Unit, ...]  # signatures that could not follow


class _Ambiguous(Exception):
    """A signature's parameters are not like those of its implementation."""


def with_stubs(source: SourceFile, language: Language | None, unit: Unit, new_bytes: bytes) -> Followed:
    """Return the file with the unit's overload signatures as its new implementation needs them."""
    if not unit.stub_lines or language is None:
        return Followed(new_bytes, ())
    after = source.with_bytes(new_bytes)
    *_, old = _parameter_lists(source, language, unit, unit.last_line)
    found = _parameter_lists(after, language, unit, unit.last_line + len(after.lines) - len(source.lines))
    if not found or _keys(old) == _keys(found[-1]):
        return Followed(new_bytes, ())
    *stubs, new = found
    left = list[Unit]()
    for stub in reversed(stubs):  # from the end: lines above stay in place
        first, last = stub.start_point.row + 1, stub.end_point.row + 1
        made = after
        with suppress(_Ambiguous):
            text = _in_lines(after, stub, _followed(language, stub, old, new))
            made = after.with_bytes(splice(after, first, last, text))
        if made is after or syntax_problems(after, language, made):
            name = f"{unit.qualified_name} (overload at line {first})"
            left.append(Unit("lines", unit.name, name, first, last))
            continue
        after = replace(made, newline=source.newline)
    return Followed(after.raw, tuple(left))


def _parameter_lists(source: SourceFile, language: Language, unit: Unit, last_line: int) -> list[Node]:
    """Return the parameters of each declaration of the unit's name in its lines, the implementation last."""
    found, pending = list[Node](), [language.parse(source.text).root_node]
    while pending:
        node = pending.pop()
        if node.start_point.row >= last_line or node.end_point.row + 1 < unit.first_line:
            continue
        name, parameters = node.child_by_field_name("name"), node.child_by_field_name("parameters")
        if name is not None and parameters is not None and node.start_point.row + 1 >= unit.first_line:
            if text_of(name) == unit.name:
                found.append(parameters)
            continue
        pending += node.children
    return sorted(found, key=lambda node: node.start_byte)


def _items(parameters: Node) -> list[Node]:
    return [node for node in parameters.named_children if "comment" not in node.type]


def _key(node: Node) -> str:
    """Return a parameter's name, with its stars; a separator is its own name."""
    shown = node.child_by_field_name("name") or node.child_by_field_name("pattern")
    if shown is None and node.type.startswith("typed_"):
        shown = node.named_children[0]
    return text_of(shown or node)


def _keys(parameters: Node) -> list[str]:
    return [_key(node) for node in _items(parameters)]


def _followed(language: Language, stub: Node, old: Node, new: Node) -> bytes:
    """Return the text of a stub's parameters with what the implementation gained and lost."""
    before, now, has = _keys(old), _keys(new), _keys(stub)
    gained = [key for key in now if key not in before]
    lost = [key for key in before if key not in now]
    kept = [key for key in now if key in before]
    if (gained and lost) or kept != [key for key in before if key in now] or set(gained) & set(has):
        raise _Ambiguous
    data = stub.text or b""
    nodes = dict(zip(has, _items(stub), strict=True))
    for key in reversed(has):
        if key in lost:
            data = _without(data, stub, list(nodes.values()), nodes[key])
    if gained:
        written = dict(zip(now, _items(new), strict=True))
        data = _with_gained(language, data, stub, nodes, written, gained)
    return data


def _with_gained(
    language: Language,
    data: bytes,
    stub: Node,
    nodes: dict[str, Node],
    written: dict[str, Node],
    gained: Sequence[str],
) -> bytes:
    """Insert new parameters behind the one before them; those that are given by name stand at the end."""
    texts: dict[str, list[bytes]] = {}
    named: list[bytes] = []
    at, is_behind_star = "", False
    for key, node in written.items():
        if key not in gained:
            at = key
        elif is_behind_star:
            named.append(_signature_of(language, node))
        elif key != "*":
            texts.setdefault(at, []).append(_signature_of(language, node))
        is_behind_star = is_behind_star or _is_star(key)
    if named:
        end = next((key for key in reversed(nodes) if not key.startswith("**")), "")
        texts.setdefault(end, []).extend(named if any(map(_is_star, nodes)) else [b"*", *named])
    if any(before and before not in nodes for before in texts):
        raise _Ambiguous
    for before in sorted(texts, key=lambda key: -(nodes[key].start_byte if key in nodes else -1)):
        data = _inserted(data, stub, nodes.get(before), list(nodes.values()), texts[before])
    return data


def _is_star(key: str) -> bool:
    """Return whether what stands behind must be given by its name."""
    return key.startswith("*") and not key.startswith("**")


def _inserted(data: bytes, stub: Node, above: Node | None, items: list[Node], texts: list[bytes]) -> bytes:
    near = above or (items[0] if items else None)
    if near is None:
        return data[:1] + b", ".join(texts) + data[1:]
    is_own_line = near.start_point.row > stub.start_point.row
    gap = b",\n" + b" " * near.start_point.column if is_own_line else b", "
    if above is None:
        at = near.start_byte - stub.start_byte
        return data[:at] + b"".join(text + gap for text in texts) + data[at:]
    at = above.end_byte - stub.start_byte
    return data[:at] + b"".join(gap + text for text in texts) + data[at:]


def _without(data: bytes, stub: Node, items: list[Node], node: Node) -> bytes:
    index = items.index(node)
    if index + 1 < len(items):
        first, last = node.start_byte, items[index + 1].start_byte
    else:
        first, last = items[index - 1].end_byte if index else node.start_byte, node.end_byte
    return data[: first - stub.start_byte] + data[last - stub.start_byte :]


def _signature_of(language: Language, node: Node) -> bytes:
    """Return a parameter as a signature has it: a default is `...`, or a question mark in TypeScript."""
    text, value = node.text or b"", node.child_by_field_name("value")
    if value is None or node.type in _STARRED:
        return text
    if language is PYTHON:
        return text[: value.start_byte - node.start_byte] + b"..."
    name, kind = node.child_by_field_name("pattern"), node.child_by_field_name("type")
    if name is None or kind is None:
        raise _Ambiguous
    return (name.text or b"") + b"?" + (kind.text or b"")


def _in_lines(source: SourceFile, node: Node, text: bytes) -> str:
    """Return the whole lines of a node with another text in its place."""
    lines = source.lines[node.start_point.row : node.end_point.row + 1]
    before = lines[0].encode()[: node.start_point.column]
    behind = lines[-1].encode()[node.end_point.column :]
    return (before + text + behind).decode() + "\n"
