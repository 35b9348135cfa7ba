"""The model's answer while it grows: paragraphs, lists, code in fences.

Owns the small part of Markdown that is drawn: headings, bullets, `code`, **bold**, fences. Only the last
line is drawn again when text is added, so an answer of any length costs the same. Does not own code's
colours (`syntax`).
"""

import re
from collections.abc import Sequence

from vivace.tui.transcript.spans import Row, Span, clean, wrap_code, wrap_words
from vivace.tui.transcript.syntax import colour, lexer_name

INDENT: Row = (Span("  "),)
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_HEADING = re.compile(r"^#{1,6}\s+")
_BULLET = re.compile(r"^(\s*)([-*+]|\d+[.)])\s+")
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")


class Answer:
    """Text that comes in pieces. `strike` shows that the user turned it around here."""

    def __init__(self) -> None:
        self.version = 0
        self.is_struck = False
        self._pieces: list[str] = []  # not yet joined to the text
        self._text = ""
        self._width = 0
        self._drawn = 0  # characters of the text whose lines are complete and drawn
        self._rows: list[Row] = []  # of complete lines
        self._fence, self._lexer, self._state = "", "", ""

    @property
    def text(self) -> str:
        if self._pieces:
            self._text += "".join(self._pieces)
            self._pieces.clear()
        return self._text

    def grow(self, delta: str) -> None:
        self._pieces.append(delta)
        self.version += 1

    def strike(self) -> None:
        self.is_struck = True
        self._forget()
        self.version += 1

    def _forget(self) -> None:
        self._drawn, self._rows = 0, []
        self._fence = self._lexer = self._state = ""

    def rows(self, width: int) -> Sequence[Row]:
        if width != self._width:
            self._width = width
            self._forget()
        text = self.text
        end = text.rfind("\n") + 1
        if end > self._drawn:
            for line in text[self._drawn : end].split("\n")[:-1]:
                self._rows += self._line(clean(line), width)
            self._drawn = end
        if end == len(text):
            return self._rows
        fence = self._fence, self._lexer, self._state
        last = self._line(clean(text[end:]), width)
        self._fence, self._lexer, self._state = fence  # it may still change
        return _Joined(self._rows, last)

    def _line(self, line: str, width: int) -> list[Row]:
        """Return the rows of one line, and note in which fence the next one is."""
        fence = _FENCE.match(line)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not fence[2]:
                self._fence = ""
                return [(Span("  ╵", "rule"),)]
            spans, self._state = colour(line, self._state, self._lexer)
            return wrap_code(self._styled(spans), width, (Span("  │ ", "rule"),), (Span("  │ ", "rule"),))
        if fence:
            self._fence, self._lexer, self._state = fence[1], lexer_name(fence[2]), ""
            return [(Span("  ╷ ", "rule"), Span(fence[2], "dim"))]
        return self._prose(line, width)

    def _prose(self, line: str, width: int) -> list[Row]:
        if heading := _HEADING.match(line):
            return wrap_words(self._styled([Span(line[heading.end() :], "bold")]), width, INDENT, INDENT)
        if bullet := _BULLET.match(line):
            lead = f"  {bullet[1]}{'•' if bullet[2] in '-*+' else bullet[2]} "
            spans = self._styled(_inline(line[bullet.end() :]))
            return wrap_words(spans, width, (Span(lead),), (Span(" " * len(lead)),))
        return wrap_words(self._styled(_inline(line)), width, INDENT, INDENT)

    def _styled(self, spans: Sequence[Span]) -> Sequence[Span]:
        return [Span(span.text, "struck") for span in spans] if self.is_struck else spans


class _Joined(Sequence[Row]):
    """Two lists of rows, seen as one without a copy."""

    def __init__(self, head: list[Row], tail: list[Row]) -> None:
        self._head, self._tail = head, tail

    def __len__(self) -> int:
        return len(self._head) + len(self._tail)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        assert isinstance(index, int)
        inside = index - len(self._head)
        return self._head[index] if inside < 0 else self._tail[inside]


def _inline(line: str) -> list[Span]:
    spans: list[Span] = []
    at = 0
    for found in _INLINE.finditer(line):
        if found.start() > at:
            spans.append(Span(line[at : found.start()]))
        spans.append(Span(found[1], "literal") if found[1] else Span(found[2], "bold"))
        at = found.end()
    if at < len(line):
        spans.append(Span(line[at:]))
    return spans
