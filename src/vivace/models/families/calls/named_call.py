"""A call as its name and its arguments, `NAME[ARGS]{…}` behind a token (Mistral, Kimi, DeepSeek).

Owns reading such a call while it comes, and the grammar of Mistral's. Where marks are control tokens, a
parser gets them by name.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from vivace.models.families.base import Tool
from vivace.models.families.calls.json_call import Arguments, JsonCall
from vivace.models.families.calls.lark_grammar import TEXT, arguments_rule, literal
from vivace.models.families.calls.scanning import begun, past_space

CALL, ARGS = "[TOOL_CALLS]", "[ARGS]"
MAX_NAME = 512  # characters of a heading; what is longer is none


class Heading(msgspec.Struct, frozen=True):
    """What stands before the arguments of a call."""

    mark: str = ARGS  # between it and the arguments
    name: str = "(.+)"  # the pattern of all of it; its group is the tool's name
    is_kept: bool = False  # the mark is the first character of the arguments

    def tool_name(self, text: str) -> str:
        found = re.fullmatch(rf"\s*{self.name}\s*", text, re.DOTALL)
        return found[1].strip() if found else ""


class NamedCall(JsonCall):
    def __init__(self, tools: Mapping[str, Tool], heading: Heading = Heading()) -> None:  # noqa: B008
        super().__init__(tools)
        self._heading = heading
        self._head = ""  # of the name, what has come of it
        self._arguments = Arguments(self)
        self._is_inside = False  # of the arguments

    def feed(self, text: str, at: int) -> int:
        start = at
        if not self.has_begun:
            at = self._read_name(text, at)
        if self.has_begun and not self._is_inside:
            at = past_space(text, at)
            self._is_inside = at < len(text)
        if self._is_inside and at < len(text):
            at = self._arguments.feed(text, at)
            if self._arguments.is_over and self._check():
                self._end()
                self.is_over = True
            self.is_wrong = self._arguments.is_wrong or (self._arguments.is_over and not self.is_over)
        self._raw.append(text[start:at])
        return at

    def _read_name(self, text: str, at: int) -> int:
        mark = self._heading.mark
        found = text.find(mark, at)
        last = at + MAX_NAME - len(self._head)  # where the mark must begin
        end = found if found >= 0 else len(text) - begun(text, at, (mark,))
        self.is_wrong = end > last
        self._head += text[at : min(end, last)]
        if self.is_wrong or found < 0:
            return min(end, last)
        self._tool = self._tools.get(self._heading.tool_name(self._head))
        if self._tool is None:
            self.is_wrong = True
        else:
            self._begin()
        return end if self._heading.is_kept else end + len(mark)


class NamedForm:
    """The grammar of such calls. No grammar may have control tokens, so in it the marks are letters.

    So a model is not held to the schemas of tools that it only may call: it would have to spell the marks.
    """

    def holds(self, tool: Tool) -> bool:
        del tool
        return False

    def opener(self) -> str:
        return literal(CALL)

    def calls(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        more = f"({self.opener()} call)*" if is_parallel else ""
        ways = " | ".join(f"{literal(tool.name + ARGS)} args_{i}" for i, tool in enumerate(tools))
        rules = [f"args_{i}: {arguments_rule(tool)}" for i, tool in enumerate(tools)]
        return [f"calls: call {more}", f"call: {ways}", *rules]

    def free(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        many = "*" if is_parallel else "?"
        rules = self.calls(tools, is_parallel=False)
        return [f"free: TEXT ({self.opener()} calls){many}", TEXT, *rules]
