"""Where a log ends, read from its tokens: in an answer, behind one, or behind another message.

Owns the texts by which messages are found again. They contain markers, so nobody but the template and the
model can have written them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vivace.models.families.template import probes
from vivace.models.families.template.frames import Frames
from vivace.models.families.template.script import Kind, Place
from vivace.models.families.template.tokens import SPACE
from vivace.models.tokenizer import Tokenizer

BLOCK = 1024  # tokens that are looked at first, from the end
_HIDDEN = "\x00"  # stands for characters of plain text that a marker could begin with


class _Sign(NamedTuple):
    text: str
    kind: Kind
    is_answer: bool = False  # an answer begins behind it


class LogEnd:
    """Reads the ends of logs that one template wrote."""

    def __init__(self, frames: Frames, tokenizer: Tokenizer, stops: frozenset[int]) -> None:
        self._frames, self._tokenizer, self._stops = frames, tokenizer, stops
        known = tokenizer.vocabulary().markers
        self._names = {known[name].token: name for name in frames.markers.names if name in known}
        self._known = known
        spaced = b"".join(map(tokenizer.token_bytes, tokenizer.encode("a")))
        self._has_space = spaced == b" a"  # text behind a marker begins with a space that nobody wrote
        self._table = {ord(char): _HIDDEN for char in frames.markers.starts}
        self._signs = self._find_signs()
        self._tool_close = "" if any(sign.kind == "tool" for sign in self._signs) else frames.tool_close

    def _find_signs(self) -> list[_Sign]:
        frames = self._frames
        has_marker = frames.markers.has_any
        signs: list[_Sign] = []
        if has_marker(frames.begun):
            signs.append(_Sign(frames.begun, "assistant", is_answer=True))
        else:
            signs.append(_Sign(frames.user_close, "user", is_answer=True))
        signs.append(_Sign(frames.user_open, "user"))
        head = frames.tool_open
        for word in (probes.TOOL_NAME, frames.call_id("", 0)):
            head = head.partition(word)[0]
        if has_marker(head) and head != frames.user_open:
            signs.append(_Sign(head, "tool"))
        if not has_marker(frames.begun) and frames.has_later_system:
            _, _, close = frames.later_system(probes.SYSTEM, {}).partition(probes.SYSTEM)
            signs.append(_Sign(close if has_marker(close) else "", "system"))
        if has_marker(frames.tool_close) and not has_marker(frames.begins.get("tool", "")):
            signs.append(_Sign(frames.tool_close, "tool", is_answer=True))
        return [sign._replace(text=self._hidden(sign.text)) for sign in signs if sign.text]

    def place(self, log: Sequence[int]) -> Place:
        """Return where the log ends."""
        if not log:
            return Place()
        for text, is_whole in self._tails(log):
            found = max(
                self._signs,
                key=lambda sign: (
                    text.rfind(sign.text) + len(sign.text) if sign.text in text else -1,
                    len(sign.text),
                ),
            )
            if found.text in text:
                return self._place(log, text, found)
            if is_whole:
                break
        return Place("system")

    def _tails(self, log: Sequence[int]) -> list[tuple[str, bool]]:
        sizes = [size for size in (BLOCK, BLOCK * 16) if size < len(log)]
        return [(self.shown(log[-size:]), False) for size in sizes] + [(self.shown(log), True)]

    def _place(self, log: Sequence[int], text: str, sign: _Sign) -> Place:
        rest = text[text.rfind(sign.text) + len(sign.text) :]
        if not sign.is_answer:
            close = self._hidden(self._frames.user_close)
            is_open = sign.kind == "user" and self._frames.markers.has_any(close) and close not in rest
            return Place("awaiting" if is_open else sign.kind)
        if sign.kind != "assistant" and not rest:
            return Place(sign.kind)
        said = self._said(log, sign)
        if log[-1] in self._stops:
            return Place("assistant", said, self._names.get(log[-1], "\x00"))
        if self._tool_close and text.endswith(self._hidden(self._tool_close)):
            return Place("tool")
        return Place("assistant", said)

    def _said(self, log: Sequence[int], sign: _Sign) -> str:
        """Return the text behind a sign, as it is."""
        size = BLOCK
        while True:
            tail = log[-size:]
            pieces = self._pieces(tail)
            plain, hidden = "", ""
            for text, is_name in pieces:
                plain += text
                hidden += text if is_name else text.translate(self._table)
            at = hidden.rfind(sign.text)
            if at >= 0 or size >= len(log):
                return plain[at + len(sign.text) :]
            size *= 4

    def request(self, log: Sequence[int]) -> str:
        """Return the last message of the user's; "" if there is none."""
        frames = self._frames
        text = self.shown(log)
        begin, close = self._hidden(frames.user_open), self._hidden(frames.user_close or frames.begun)
        at = text.rfind(begin)
        if at < 0 or not begin:
            return ""
        plain = "".join(text for text, _ in self._pieces(log))
        said = plain[at + len(begin) :]
        end = text[at + len(begin) :].find(close)
        return said[:end] if end >= 0 else ""

    def shown(self, log: Sequence[int]) -> str:
        """Return tokens as text in which only markers have the characters of markers."""
        return "".join(
            text if is_name else text.translate(self._table) for text, is_name in self._pieces(log)
        )

    def _pieces(self, log: Sequence[int]) -> list[tuple[str, bool]]:
        pieces: list[tuple[str, bool]] = []
        run = bytearray()
        for token in log:
            name = self._names.get(token)
            if name is None:
                run += self._tokenizer.token_bytes(token)
                continue
            pieces += [(self._text(run, is_behind=bool(pieces)), False), (name, True)]
            run.clear()
        return [*pieces, (self._text(run, is_behind=bool(pieces)), False)]

    def _text(self, run: bytearray, *, is_behind: bool) -> str:
        text = run.decode("utf-8", "replace")
        return text.removeprefix(" ") if self._has_space and is_behind else text

    def _hidden(self, text: str) -> str:
        """Return template text as `shown` has it: markers may have taken white space with them."""
        found: list[str] = []
        is_stripped = False
        for part in self._frames.markers.split(text):
            marker = self._known.get(part)
            if marker is None:
                found.append((part.lstrip(SPACE) if is_stripped else part).translate(self._table))
            else:
                if marker.strips_left and found:
                    found[-1] = found[-1].rstrip(SPACE)
                found.append(part)
            is_stripped = bool(marker and marker.strips_right)
        return "".join(found)
