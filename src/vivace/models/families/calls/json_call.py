"""A call as a JSON object: `{"name": …, "arguments": {…}}` (Qwen) or with `"parameters"` (Llama).

Owns what counts as such a call while it comes. The call begins when its name is whole and known; then its
arguments go on as they were written. Arguments in a string lose their escapes; those that came before the
name wait for it. A custom tool's free text is the string `input` of its arguments, or the arguments
themselves.
"""

import json
from collections.abc import Mapping

from vivace.models.families.base import Tool
from vivace.models.families.calls.call_reader import PartialCall
from vivace.models.families.calls.json_reading import (
    ObjectReader,
    Reader,
    StringValue,
    ValueReader,
    decoded,
    is_json_object,
)
from vivace.models.families.calls.scanning import is_begun, past_space

ARGUMENTS = ("arguments", "parameters")
INPUT = "input"  # the one parameter that a custom tool has where calls are JSON


class JsonCall(PartialCall):
    """Reads a call between markers."""

    def __init__(self, tools: Mapping[str, Tool], *, name_key: str = "name") -> None:
        super().__init__(tools)
        self._name_key = name_key
        self._name: list[str] = []
        self._early: list[str] = []  # arguments that came before the name
        self._odd: list[str] = []  # arguments that are neither an object nor a string
        self._has_arguments = self._has_input = False
        self._is_sound = False  # its arguments are what the tool needs
        self._object = ObjectReader(self._choose, self._close)

    def feed(self, text: str, at: int) -> int:
        start = at
        if not self.has_ended:
            at = self._object.feed(text, at)
            if self._object.is_over:
                self._end_object()
            elif self._object.is_wrong:
                self._give_up()
        if self.has_ended and self._object.is_doubled and not self.is_over:
            at = self._close_twice(text, at)
        self._raw.append(text[start:at])
        return at

    def finish(self) -> None:
        if not self.has_ended:
            self._give_up()

    # ---- values of the object --------------------------------------------------------------------

    def _choose(self, key: str) -> Reader | None:
        if key == self._name_key and not self._name:
            return StringValue(self._name.append)
        if key in ARGUMENTS and not self._has_arguments:
            return Arguments(self)
        return ValueReader(_ignore) if key not in (self._name_key, *ARGUMENTS) else None

    def _close(self, key: str) -> bool:
        """End a value; return whether this may still be a call."""
        if key == self._name_key:
            self._tool = self._tools.get("".join(self._name))
            if self._tool:
                self._begin()
                return not self._early or self._tell_early()
            return False
        if key in ARGUMENTS:
            self._has_arguments = True
            return not self._tool or self._check()
        return True

    def arguments_reader(self, first: str) -> Reader | None:
        """Return the reader of arguments that begin with this character."""
        if not self._tool:
            return ValueReader(self._early.append)
        if first == '"':
            self._has_input = True
            return StringValue(self._grow)
        if first == "{":
            return (
                ObjectReader(self._choose_input, lambda _: True)
                if self._tool.is_custom
                else ValueReader(self._grow)
            )
        return ValueReader(self._odd.append)

    def _choose_input(self, key: str) -> Reader:
        if key != INPUT or self._has_input:
            return ValueReader(_ignore)
        self._has_input = True
        return StringValue(self._grow)

    def _tell_early(self) -> bool:
        """Report arguments that came before the name."""
        assert self._tool is not None
        text = "".join(self._early)
        value = decoded(text)
        if self._tool.is_custom:
            value = value.get(INPUT) if isinstance(value, dict) else value
            self._has_input = isinstance(value, str)
            self._grow(value if isinstance(value, str) else "")
        elif isinstance(value, str):
            self._grow(value)
        elif isinstance(value, dict):
            self._grow(text)
        else:
            self._odd.append(text)
        return self._check()

    def _check(self) -> bool:
        """Return whether the complete arguments are what the tool needs."""
        assert self._tool is not None
        if not self._tool.is_custom and not self._grown and "".join(self._odd).strip() in ("", "null"):
            self._grow("{}")
        self._is_sound = self._has_input if self._tool.is_custom else is_json_object("".join(self._grown))
        return self._is_sound

    # ---- the end ---------------------------------------------------------------------------------

    def _end_object(self) -> None:
        """End the call at its last brace."""
        if self.has_begun and not self._has_arguments:
            self._check()
        self.is_wrong = not (self.has_begun and self._is_sound)
        if not self.is_wrong:
            self._end()
            self.is_over = not self._object.is_doubled

    def _give_up(self) -> None:
        """End a call that cannot go on. It is complete if only the last brace is missing."""
        if self._is_sound and self._object.is_between:
            self._end()
            self.is_over = True
        else:
            self.is_wrong = True

    def _close_twice(self, text: str, at: int) -> int:
        """Skip a second last brace."""
        at = past_space(text, at)
        if at == len(text):
            return at
        self.is_over = True
        return at + (text[at] == "}")


class KeyedCall(JsonCall):
    """Reads a call whose one key is the tool's name: `{NAME: {…}}`."""

    def _choose(self, key: str) -> Reader | None:
        self._tool = None if self._tool else self._tools.get(key)
        if self._tool:
            self._begin()
        return Arguments(self) if self._tool else None

    def _close(self, key: str) -> bool:  # noqa: ARG002
        return super()._close(ARGUMENTS[0])


class BareCall(JsonCall):
    """Reads a call without markers: an object that begins with the name of a known tool."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self._names = {to_json(name): tool for name, tool in tools.items()}
        self._step = ""
        self._has_head = False

    def feed(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and not (self._has_head or self.is_wrong):
            at = past_space(text, at)
            if at < len(text):
                found = self._advance(text, at)
                if found == at and not self._has_head:  # wrong, or not all of a word is here
                    break
                at = found
        self._raw.append(text[start:at])
        return super().feed(text, at) if self._has_head else at

    def _advance(self, text: str, at: int) -> int:
        """Read one word of the expected beginning."""
        steps = BARE_STEPS[self._step] or dict.fromkeys(self._names, "name,")
        for word, step in steps.items():
            if text.startswith(word, at):
                self._step = step
                self._object.is_doubled |= step == "second"
                self._tool = self._names.get(word, self._tool)
                if step == "end":
                    self._begin()
                    self._object.begin_at(ARGUMENTS[0])
                    self._has_head = True
                return at + len(word) * (step != "end")
        self.is_wrong = not is_begun(text, at, *steps)
        return at


# What must come next, and where it leads; nothing: the name of a tool. The last brace is the arguments' own.
BARE_STEPS: dict[str, dict[str, str]] = {
    "": {"{": "first"},
    "first": {"{": "second", '"type"': "type:", '"name"': "name:"},
    "second": {'"type"': "type:", '"name"': "name:"},
    "type:": {":": "type"},
    "type": {'"function"': "type,"},
    "type,": {",": "name"},
    "name": {'"name"': "name:"},
    "name:": {":": "which"},
    "which": {},
    "name,": {",": "arguments"},
    "arguments": {f'"{word}"': "arguments:" for word in ARGUMENTS},
    "arguments:": {":": "value"},
    "value": {"{": "end"},
}


class Arguments:
    """Reads the value of `arguments`. Its first character decides the reader."""

    def __init__(self, call: JsonCall) -> None:
        self._call = call
        self._reader: Reader | None = None
        self.is_over = self.is_wrong = False

    def feed(self, text: str, at: int) -> int:
        if self._reader is None:
            self._reader = self._call.arguments_reader(text[at])
            if self._reader is None:
                self.is_wrong = True
                return at
        at = self._reader.feed(text, at)
        self.is_over, self.is_wrong = self._reader.is_over, self._reader.is_wrong
        return at


def to_json(value: object) -> str:
    """Return JSON as chat templates write it: a space behind commas and colons, no escaped letters."""
    return json.dumps(value, ensure_ascii=False)


def _ignore(_text: str) -> None:
    pass
