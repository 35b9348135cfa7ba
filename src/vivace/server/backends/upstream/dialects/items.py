"""A conversation as an upstream gets it: whole each time, and so that no server stumbles over it.

Owns the order of calls and outputs. Servers refuse a call without its output, an output without its call,
and anything between the two; histories of interrupted turns have all of these. Nothing that was said is
lost: an output without a call becomes a message. Reasoning of earlier turns is left out: servers refuse
what they did not sign. Does not own how it is written in either API.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from vivace.protocol.shapes.items import CALLS, OUTPUTS, InputItem

NO_OUTPUT = "The call was not carried out."

Role = Literal["system", "developer", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[str, ...]
    is_open: bool = False  # to be continued by the model


class Call(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    namespace: str
    text: str  # arguments, or the input of a custom tool
    is_custom: bool


class Output(msgspec.Struct, frozen=True):
    call_id: str
    text: str
    is_custom: bool


Entry = Message | Call | Output


def conversation(items: Sequence[InputItem]) -> list[Entry]:
    """Return what to send: each run of calls is followed by just their outputs, in the same order."""
    return _Sorter(items).sorted()


class _Sorter:
    def __init__(self, items: Sequence[InputItem]) -> None:
        self._items = items
        self._outputs: dict[str, deque[int]] = {}  # where those of each call id are
        for place, item in enumerate(items):
            if item.type in OUTPUTS:
                self._outputs.setdefault(item.call_id or "", deque()).append(place)
        self._used: set[int] = set()
        self._entries: list[Entry] = []
        self._waiting: list[tuple[int, Call]] = []  # calls whose outputs have not been placed

    def sorted(self) -> list[Entry]:
        for place, item in enumerate(self._items):
            if item.type in CALLS:
                call = _call(item, place)
                self._waiting.append((place, call))
                self._entries.append(call)
            elif item.type in OUTPUTS:
                self._add_output(place, item)
            elif item.type == "message" and item.role:
                self._add_message(item, item.role, is_last=place == len(self._items) - 1)
        self._answer()
        return self._entries

    def _add_message(self, item: InputItem, role: Role, *, is_last: bool) -> None:
        parts = _parts(item)
        is_open = is_last and role == "assistant" and item.status == "in_progress"
        if role != "assistant":
            self._answer()
        if parts or role == "user":
            self._entries.append(Message(role, parts, is_open))

    def _add_output(self, place: int, item: InputItem) -> None:
        if any(call.call_id == item.call_id for _, call in self._waiting):
            self._answer()
        if place not in self._used:
            self._answer()
            words = f"Output of the call {item.call_id}:\n{item.output_text}"
            self._entries.append(Message("user", (words,)))

    def _answer(self) -> None:
        """Put the outputs of the open calls behind them."""
        for place, call in self._waiting:
            found = self._output_of(call.call_id, place)
            text = self._items[found].output_text if found is not None else NO_OUTPUT
            self._entries.append(Output(call.call_id, text, call.is_custom))
        self._waiting = []

    def _output_of(self, call_id: str, after: int) -> int | None:
        places = self._outputs.get(call_id)
        while places:
            place = places.popleft()
            if place > after:
                self._used.add(place)
                return place
        return None


def _call(item: InputItem, place: int) -> Call:
    call_id = item.call_id or f"call_{place}"
    is_custom = item.type == "custom_tool_call"
    return Call(call_id, item.name or "", item.namespace or "", item.call_text, is_custom)


def _parts(item: InputItem) -> tuple[str, ...]:
    if isinstance(item.content, str):
        return (item.content,) if item.content else ()
    return tuple(_words(part.words for part in item.content or ()))


def _words(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if text]
