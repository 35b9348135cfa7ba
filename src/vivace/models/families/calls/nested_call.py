"""A call as tags in tags (MiniMax M3): each key is a tag, its value text or more tags, a list `<item>` tags.

Owns how such a call becomes JSON: the tool's schema says what is an object, a list or a number; where it does
not, a value is what it looks like. Texts of the first level go on as they come. Every tag has a prefix that
no text has. Calls are not held by a grammar.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vivace.models.families.base import Tool
from vivace.models.families.calls.call_reader import PartialCall
from vivace.models.families.calls.json_call import INPUT
from vivace.models.families.calls.loose_values import quoted
from vivace.models.families.calls.scanning import begun, past_space
from vivace.models.families.calls.xml_call import MAX_NAME, json_value, types_of

PREFIX = "]<]minimax[>["
INVOKE = f'{PREFIX}<invoke name="'
_END = "/invoke"
_ITEM = "item"


class Element:
    """A tag that is open: what stands in it so far."""

    def __init__(self, key: str, schema: Any, types: set[str]) -> None:
        self.key, self.schema, self.types = key, schema, types
        self.text: list[str] = []
        self.children: list[tuple[str, str]] = []  # keys and values as JSON

    def child(self, key: str) -> "Element":
        schema = self.schema if isinstance(self.schema, dict) else {}
        inner = {"properties": {key: schema.get("items")}} if key == _ITEM and "items" in schema else schema
        properties = inner.get("properties")
        found = properties.get(key) if isinstance(properties, dict) else None
        return Element(key, found, types_of(inner, key))

    def json(self) -> str:
        is_list = all(key == _ITEM for key, _ in self.children) and "object" not in self.types
        if self.types == {"array"} or (self.children and is_list):
            return f"[{', '.join(value for _, value in self.children)}]"
        if self.types == {"object"} or self.children:
            return "{" + ", ".join(f'"{quoted(key)}": {value}' for key, value in self.children) + "}"
        return json_value("".join(self.text), self.types)


class NestedCall(PartialCall):
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self._stack: list[Element] = []  # the call's own first
        self._head: list[str] = []  # of a tag, what has come of it
        self._count = 0
        self._has_input = False
        self._waits = False
        self._state: Callable[[str, int], int] = self._open

    def feed(self, text: str, at: int) -> int:
        start, self._waits = at, False
        while at < len(text) and not (self.is_over or self.is_wrong or self._waits):
            at = self._state(text, at)
        self._raw.append(text[start:at])
        return at

    def finish(self) -> None:
        self.is_wrong = not self.has_ended

    # ---- states ----------------------------------------------------------------------------------

    def _open(self, text: str, at: int) -> int:
        at = past_space(text, at)
        if text.startswith(INVOKE, at):
            self._state = self._name
            return at + len(INVOKE)
        self._waits = begun(text, at, (INVOKE,)) == len(text) - at
        self.is_wrong = not self._waits
        return at

    def _name(self, text: str, at: int) -> int:
        at, name = self._read_tag(text, at)
        if name is None:
            return at
        self._tool = self._tools.get(name.rstrip('"'))
        self.is_wrong = self._tool is None
        if self._tool:
            self._begin()
            self._grow("" if self._tool.is_custom else "{")
            self._stack = [Element("", self._tool.parameters or {}, {"object"})]
            self._state = self._inside
        return at

    def _inside(self, text: str, at: int) -> int:
        """Read text up to the next tag."""
        mark = f"{PREFIX}<"
        found = text.find(mark, at)
        end = found if found >= 0 else len(text) - begun(text, at, (mark,))
        if end > at:
            self._say(text[at:end])
        if found < 0:
            self._waits = end < len(text)
            return end
        self._state = self._tag
        return end + len(mark)

    def _tag(self, text: str, at: int) -> int:
        at, tag = self._read_tag(text, at)
        if tag is None:
            return at
        self._state = self._inside
        if tag == _END and len(self._stack) == 1:
            self._close_call()
        elif not tag.startswith("/"):
            self._open_element(tag)
        elif len(self._stack) > 1 and tag[1:] == self._stack[-1].key:
            self._close_element()
        else:
            self.is_wrong = True
        return at

    # ---- small steps -----------------------------------------------------------------------------

    def _read_tag(self, text: str, at: int) -> tuple[int, str | None]:
        """Read up to `>`; None if that is not here yet."""
        last = at + MAX_NAME - sum(map(len, self._head))
        found = text.find(">", at)
        end = found if found >= 0 else len(text)
        self.is_wrong = end > last
        self._head.append(text[at : min(end, last)])
        if self.is_wrong or found < 0:
            return min(end, last), None
        head, self._head = "".join(self._head), []
        return end + 1, head

    def _is_told(self) -> bool:
        """Return whether the open element is a text that is told as it comes."""
        return len(self._stack) == 2 and self._stack[1].types == {"string"}

    def _say(self, text: str) -> None:
        assert self._tool is not None
        if self._tool.is_custom:
            self._grow(text if len(self._stack) == 2 and self._stack[1].key == INPUT else "")
        elif self._is_told():
            self._grow(quoted(text))
        else:
            self._stack[-1].text.append(text)

    def _open_element(self, key: str) -> None:
        assert self._tool is not None
        self._stack.append(self._stack[-1].child(key))
        if len(self._stack) == 2:
            self._has_input |= key == INPUT
            if not self._tool.is_custom:
                self._grow(f'{", " if self._count else ""}"{quoted(key)}": ')
                self._grow('"' if self._is_told() else "")
            self._count += 1

    def _close_element(self) -> None:
        assert self._tool is not None
        is_told = self._is_told()
        element = self._stack.pop()
        if len(self._stack) > 1:
            self._stack[-1].children.append((element.key, element.json()))
        elif not self._tool.is_custom:
            self._grow('"' if is_told else element.json())

    def _close_call(self) -> None:
        assert self._tool is not None
        self.is_wrong = self._tool.is_custom and not self._has_input
        if not self.is_wrong:
            self._grow("" if self._tool.is_custom else "}")
            self._end()
            self.is_over = True
