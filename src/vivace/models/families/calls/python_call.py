"""Calls as in Python, `NAME(KEY=VALUE, …)` (LFM2), and as Gemma 4 has them, `call:NAME{KEY:VALUE, …}`.

Owns reading such calls while they come. LFM2's template writes texts between quotes without escapes: so a
quote ends a text only if the call goes on behind it. No grammar can follow that rule; LFM2's calls have none.
"""

import re
from collections.abc import Callable, Mapping

from vivace.models.families.base import Tool
from vivace.models.families.calls.call_reader import PartialCall
from vivace.models.families.calls.json_call import INPUT
from vivace.models.families.calls.json_reading import Reader, decoded, is_json_object
from vivace.models.families.calls.loose_values import PYTHON_QUOTES, LooseReader, escape_at, quoted
from vivace.models.families.calls.named_call import Heading, NamedCall
from vivace.models.families.calls.scanning import past_space

MAX_NAME = 128  # characters, with the space behind it
GEMMA_QUOTE = '<|"|>'
_WORD = re.compile(r"[\w.-]{1,128}")
_GOES_ON = re.compile(r"\s{0,40}(?:\)\s{0,40}[,\]<]|,\s{0,40}[A-Za-z_]\w{0,64}\s{0,8}=)")
_MAY_GO_ON = re.compile(r"\s{0,40}(?:\)\s{0,40})?|\s{0,40},\s{0,40}(?:[A-Za-z_]\w{0,64}\s{0,8})?")


class TextReader:
    """Reads a text of a Python call, as JSON, from its first quote on."""

    def __init__(self, sink: Callable[[str], None], quote: str) -> None:
        self._sink = sink
        self._mark = re.compile(rf"[\\{quote}]")
        self._has_begun = False
        self.is_over = self.is_wrong = False

    def feed(self, text: str, at: int) -> int:
        if not self._has_begun:
            self._has_begun = True
            self._sink('"')
            at += 1
        while at < len(text) and not self.is_over:
            found = self._mark.search(text, at)
            end = found.start() if found else len(text)
            self._say(text[at:end])
            at = end
            if not found:
                break
            if text[end] == "\\":
                at, escape = escape_at(text, end)
                self._sink(escape)
            elif _GOES_ON.match(text, end + 1):
                self._sink('"')
                self.is_over = True
                at = end + 1
            elif not _MAY_GO_ON.fullmatch(text, end + 1):
                self._say(text[end])
                at = end + 1
            if at == end:  # more must come
                break
        return at

    def _say(self, text: str) -> None:
        if text:
            self._sink(quoted(text))


class PythonCall(PartialCall):
    """Reads `NAME(KEY=VALUE, …)`."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self._key = ""
        self._count = 0
        self._input: list[str] = []  # of a custom tool, its text as JSON
        self._reader: Reader | None = None
        self._state: Callable[[str, int], int] = self._name

    def feed(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and not (self.is_over or self.is_wrong):
            if not self._reader:
                at = past_space(text, at)
            if at == len(text):
                break
            behind = self._read(text, at) if self._reader else self._state(text, at)
            if behind == at:  # more must come
                break
            at = behind
        self._raw.append(text[start:at])
        return at

    def finish(self) -> None:
        self.is_wrong = not self.has_ended

    def _name(self, text: str, at: int) -> int:
        return self._word(text, at, "(", self._begin_call)

    def _argument(self, text: str, at: int) -> int:
        if text[at] == ")":
            return self._close(at)
        return self._word(text, at, "=", self._begin_argument)

    def _value(self, text: str, at: int) -> int:
        assert self._tool is not None
        unseen: list[str] = []
        told = self._input.append if self._key == INPUT else unseen.append
        sink = told if self._tool.is_custom else self._grow
        quote = text[at]
        self._reader = TextReader(sink, quote) if quote in PYTHON_QUOTES else LooseReader(sink)
        return self._read(text, at)

    def _behind(self, text: str, at: int) -> int:
        if text[at] == ")":
            return self._close(at)
        self.is_wrong = text[at] != ","
        self._state = self._argument
        return at + 1

    def _word(self, text: str, at: int, mark: str, step: Callable[[str], None]) -> int:
        """Read a word and the mark behind it."""
        found = _WORD.match(text, at)
        end = past_space(text, found.end()) if found else at
        if found and end < len(text) and end - at < MAX_NAME and text[end] == mark:
            step(found.group())
            return end + 1
        self.is_wrong = not found or end < len(text) or end - at >= MAX_NAME
        return at

    def _begin_call(self, name: str) -> None:
        self._tool = self._tools.get(name)
        self.is_wrong = self._tool is None
        if self._tool:
            self._begin()
            self._grow("" if self._tool.is_custom else "{")
            self._state = self._argument

    def _begin_argument(self, key: str) -> None:
        assert self._tool is not None
        self._key = key
        if not self._tool.is_custom:
            self._grow(f'{", " if self._count else ""}"{quoted(key)}": ')
        self._count += 1
        self._state = self._value

    def _read(self, text: str, at: int) -> int:
        assert self._reader is not None
        at = self._reader.feed(text, at)
        self.is_wrong = self._reader.is_wrong
        if self._reader.is_over:
            self._reader, self._state = None, self._behind
        return at

    def _close(self, at: int) -> int:
        assert self._tool is not None
        if self._tool.is_custom:
            value = decoded("".join(self._input))
            self.is_wrong = not isinstance(value, str)
            self._grow(value if isinstance(value, str) else "")
        else:
            self._grow("}")
            self.is_wrong = not is_json_object("".join(self._grown))
        if not self.is_wrong:
            self._end()
            self.is_over = True
        return at + 1


class GemmaCall(NamedCall):
    """Reads `call:NAME{KEY:VALUE, …}`, in which texts stand between quotes of Gemma's."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools, Heading(mark="{", name="(?:call:)?(.+)", is_kept=True))

    def arguments_reader(self, first: str) -> Reader | None:  # noqa: ARG002
        assert self._tool is not None
        sink = self._early.append if self._tool.is_custom else self._grow
        return LooseReader(sink, (GEMMA_QUOTE, '"'), has_escapes=False)

    def _check(self) -> bool:
        assert self._tool is not None
        if self._tool.is_custom:
            value = decoded("".join(self._early))
            text = value.get(INPUT) if isinstance(value, dict) else None
            self._has_input = isinstance(text, str)
            self._grow(text if isinstance(text, str) else "")
        return super()._check()
