"""The units of a source file, found in its syntax tree.

Owns where a unit begins and ends (whole lines, with what is attached above it) and how it opens. Lists only
units that own their lines: of two functions on one line neither can be spliced alone. Does not own what a
declaration is called (`naming`), nor which node types are units (`languages`).
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import Language
from vivace.agent.edits.find.naming import Declared, declared, members_belong_to, text_of
from vivace.agent.edits.find.units import Unit, indent_of

_MAX_DEPTH = 64  # of scopes in scopes; deeper nesting is nobody's code
_TAIL = re.compile(rb"\s*[;,]?\s*(//.*|/\*.*|#.*)?")
_COMMENT_OR_NOTHING = re.compile(rb"\s*(//.*|/\*.*|#.*)?")
_ANNOTATIONS = {"decorator", "attribute_item", "annotation", "marker_annotation"}
_SIGNATURES = {"function_signature", "method_signature"}  # TypeScript: announce what follows
_OVERLOAD = re.compile(r"\s*@(\w+\.)?overload\s*")


def list_units(source: SourceFile, language: Language | None) -> list[Unit]:
    """Return all named units in file order, none for plain text. Functions inside functions are no units."""
    if language is None:
        return []
    text = source.text
    walk = _Walk(source, language, text.encode("utf-8"))
    found = walk.children(language.parse(text).root_node, (), "file", 0)
    return list(_with_overloads_joined(found, source, walk.announcing))


class _Walk:
    """One pass down a tree, stopping at functions."""

    def __init__(self, source: SourceFile, language: Language, data: bytes) -> None:
        self.source, self.language, self.data = source, language, data
        self.announcing: set[int] = set()  # first lines of units that are overload signatures

    def children(self, node: Node, parents: tuple[str, ...], around: str, depth: int) -> Iterator[Unit]:
        """Return the units below `node`. `around` is the kind of the unit around them."""
        if depth > _MAX_DEPTH:
            return
        for child in node.named_children:
            yield from self._visit(child, parents, around, depth + 1)

    def _visit(self, outer: Node, parents: tuple[str, ...], around: str, depth: int) -> Iterator[Unit]:
        language = self.language
        node = self._unwrapped(outer)
        kind = language.kinds.get(node.type, "function" if node is not outer else "")
        found = declared(node, kind) if kind else None
        if found is not None and node.type not in language.named_scopes:
            unit = self._unit(outer, node, found, parents, around)
            if unit is not None:
                yield unit
            if found.kind == "class" and found.body is not None:
                inside = (*parents, *found.within, members_belong_to(found))
                yield from self.children(found.body, inside, "class", depth)
        elif node.type in language.named_scopes:
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            names = text_of(name).strip("\"'").split("::") if name else ()
            if body is not None:
                yield from self.children(body, (*parents, *names), "file", depth)
        elif node.is_error or node.type in language.scopes | language.wrappers:
            yield from self.children(node, parents, around, depth)

    def _unwrapped(self, node: Node) -> Node:
        """Return the declaration inside `export`, decorators or `template <…>`. A Go group stays as it is."""
        while node.type in self.language.wrappers:
            if any(child.type == "(" for child in node.children):
                return node
            fields = (node.child_by_field_name(name) for name in ("declaration", "definition", "value"))
            inner = next((field for field in fields if field), None) or _last_named(node)
            if inner is None:
                return node
            node = inner
        return node

    def _unit(
        self, outer: Node, node: Node, found: Declared, parents: tuple[str, ...], around: str
    ) -> Unit | None:
        top = self._top(outer)
        if not self._owns_its_lines(top, outer):
            return None
        last = _last_row(outer)
        names = (*parents, *found.within)
        start = _bare_start(outer)
        if self._announces(node, top.start_point.row, start.start_point.row):
            self.announcing.add(top.start_point.row + 1)
        return Unit(
            "method" if around == "class" and found.kind == "function" else found.kind,
            found.name,
            ".".join((*names, found.name)),
            top.start_point.row + 1,
            last + 1,
            signature=self._signature(start, node, found),
            signature_first_line=start.start_point.row + 1,
            opening=self._opening(top, last, node, found),
            indent=indent_of(self.source.lines[top.start_point.row]),
            parent=".".join(names) or None,
        )

    def _top(self, outer: Node) -> Node:
        """Return the first attribute or doc comment directly above, or the declaration itself."""
        top, above = outer, outer.prev_named_sibling
        while above is not None and self._belongs(above) and _last_row(above) >= top.start_point.row - 1:
            if not self._begins_its_line(above) and above.end_point.row != top.start_point.row:
                break
            top, above = above, above.prev_named_sibling
        return top

    def _belongs(self, node: Node) -> bool:
        if node.type in self.language.attached:
            return True
        pattern = self.language.doc_comment
        return "comment" in node.type and pattern is not None and re.match(pattern, text_of(node)) is not None

    def _begins_its_line(self, node: Node) -> bool:
        return not self.data[node.start_byte - node.start_point.column : node.start_byte].strip()

    def _owns_its_lines(self, top: Node, outer: Node) -> bool:
        tail = self.data[outer.end_byte : self._line_end(outer.end_byte)]
        ends_its_line = outer.end_point.column == 0 or _TAIL.fullmatch(tail) is not None
        return self._begins_its_line(top) and ends_its_line

    def _line_end(self, at: int) -> int:
        end = self.data.find(b"\n", at)
        return len(self.data) if end < 0 else end

    def _announces(self, node: Node, first: int, declaration: int) -> bool:
        lines = self.source.lines[first:declaration]
        return node.type in _SIGNATURES or any(_OVERLOAD.fullmatch(line) for line in lines)

    def _signature(self, start: Node, node: Node, found: Declared) -> str:
        end = _opener_end(node, found) or self._line_end(start.start_byte)
        return _collapsed(self.data[start.start_byte : end].decode("utf-8"))

    def _opening(self, top: Node, last: int, node: Node, found: Declared) -> str:
        """Return whole lines if the body begins on a later one, else the text up to the body's sign."""
        start = top.start_byte - top.start_point.column
        opens_at = _opener_end(node, found)
        at = opens_at if opens_at is not None else found.name_end
        end = self._line_end(at)
        more_lines = top.start_point.row + self.data.count(b"\n", start, at) < last
        if more_lines and (opens_at is None or _COMMENT_OR_NOTHING.fullmatch(self.data[at:end])):
            return self.data[start : end + 1].decode("utf-8")
        return self.data[start:at].decode("utf-8")


def _opener_end(node: Node, found: Declared) -> int | None:
    """Return the byte after what opens the body: a brace, or the sign before a block or expression."""
    body = found.body
    if body is None:
        return None
    if (body.text or b"")[:1] in (b"{", b"("):
        return body.start_byte + 1
    before = [child for child in (body.parent or node).children if child.end_byte <= body.start_byte]
    return next(child.end_byte for child in reversed(before) if "comment" not in child.type)


def _bare_start(node: Node) -> Node:
    """Return the first node of the declaration below its decorators and annotations."""
    return _first_leaf(node) or node


def _first_leaf(node: Node) -> Node | None:
    if node.type in _ANNOTATIONS or "comment" in node.type:
        return None
    leaves = (_first_leaf(child) for child in node.children)
    return next((leaf for leaf in leaves if leaf is not None), None) if node.children else node


def _last_row(node: Node) -> int:
    """Return the last row of a node. One that includes its newline ends on the row before."""
    row, column = node.end_point
    return row - 1 if column == 0 and row > node.start_point.row else row


def _last_named(node: Node) -> Node | None:
    return next((child for child in reversed(node.named_children) if "comment" not in child.type), None)


def _collapsed(text: str) -> str:
    line = " ".join(text.split()).rstrip(" {:(").removesuffix("=>").rstrip(" =(")
    return re.sub(r",? ([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", line))


def _with_overloads_joined(units: Iterator[Unit], source: SourceFile, announcing: set[int]) -> Iterator[Unit]:
    """Join overload signatures (TypeScript, `@overload` in Python) with their implementation."""
    held: Unit | None = None
    for unit in units:
        if held is None:
            held = unit
        elif held.qualified_name == unit.qualified_name and held.first_line in announcing:
            if unit.first_line not in announcing:
                announcing.discard(held.first_line)  # the body is there: a further one is another unit
            opening = source.text_of(held.first_line, unit.first_line - 1) + unit.opening
            is_whole = unit.first_line not in announcing
            stubs = unit.first_line - held.first_line if is_whole else 0
            held = replace(unit, first_line=held.first_line, opening=opening, stub_lines=stubs)
        else:
            yield held
            held = unit
    if held is not None:
        yield held
