"""Calls and reasoning in an answer of plain text (Qwen, Llama): what is text, and what is held back.

Owns the way through an answer: reasoning, text, calls, and what stands between them. Each character is
looked at once; only what may be the beginning of a marker waits. What looked like a call and is none
becomes text again. Does not own the forms of calls (`jsoncall`, `xmlcall`).
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from vivace.models.families.base import CallError, CallStart, Part, ReasoningPart, TextPart, Tool
from vivace.models.families.calls.call_reader import CallReader, joined
from vivace.models.families.calls.reasoning import Reasoning
from vivace.models.families.calls.scanning import begun, is_begun, past_space

FENCE, JSON_FENCE = "```", "```json"


class Style(msgspec.Struct, frozen=True):
    """How a family writes its calls."""

    read: Callable[[Mapping[str, Tool], bool], CallReader]  # the bool: bare, nothing else says it is a call
    openers: tuple[str, ...]  # text before a call
    kept: tuple[str, ...] = ()  # those of them that the call's reader wants to see
    closers: tuple[str, ...] = ()  # text behind it
    ends: tuple[str, ...] = ()  # text behind the last of several calls; none: a closer is that
    lead: str = ""  # single characters that may stand between an opener and its call
    between: str = ""  # single characters that may stand between two calls
    again: str = "{"  # characters that begin another call behind one, without an opener
    glue: str = "\n"  # line breaks between the answer's text and a call
    dropped: tuple[str, ...] = ()  # markers around text, which nobody sees
    is_bare_accepted: bool = False  # an answer that is nothing but the call, perhaps in a code fence
    reasoning: Reasoning | None = None


class TextParser:
    def __init__(self, tools: Mapping[str, Tool], style: Style, *, before: str = "") -> None:
        """`before` is the text that the continued message has already."""
        self._tools = tools
        self._style = style
        self._openers = style.openers if tools else ()
        self._beginnings = tuple(
            style.glue[:size] + opener for opener in self._openers for size in range(len(style.glue) + 1)
        )
        self._tags = style.reasoning
        repeated = (style.reasoning.opening,) if style.reasoning and style.reasoning.is_repeated else ()
        self._beginnings += (*style.dropped, *repeated)
        ends = (*self._beginnings, *(style.reasoning.ends if style.reasoning else ()))
        self.marker_starts = frozenset(marker[0] for marker in ends)
        marks = sorted({*self._openers, *style.dropped, *repeated}, key=len, reverse=True)
        self._mark = re.compile("|".join(map(re.escape, marks))) if marks else None
        self._parts: list[Part] = []
        self._held = ""  # may be the beginning of a marker
        self._gap: list[str] = []  # white space that is said only if text follows, or nothing at all
        self._has_said = self._has_called = False  # text since the last call; a call at all
        self._led: list[str] = []  # what led to the open call
        self._call: CallReader | None = None
        self._is_bare = False
        self._breaks = 0  # line breaks behind reasoning
        self._state = self._beginning(before)
        self._replay(before)

    @property
    def plain(self) -> type[TextPart] | type[ReasoningPart] | None:
        if self._held or self._gap or self._parts:
            return None
        if self._state == self._text:
            return TextPart if self._has_said else None
        return ReasoningPart if self._state == self._reasoning else None

    def feed(self, text: str) -> list[Part]:
        self._run(text)
        return self._take()

    def control(self, name: str) -> list[Part]:
        return self.feed(name)

    def finish(self) -> list[Part]:
        held, self._held = self._held, ""
        if self._call:
            self._call.finish()
            self._collect_call(held)
        elif self._state in (self._reasoning_first, self._reasoning):
            self._add_reasoning(held)
        elif self._state in (self._fenced, self._leading):
            self._add_text("".join(self._led) + held)
        elif self._state != self._after:  # what is held there is the half of a closer
            self._add_text(held)
        self._add_text("".join(self._gap), is_gap=True)
        return self._take()

    # ---- where an answer goes on -----------------------------------------------------------------

    def _beginning(self, before: str) -> Callable[[str, int], int]:
        if self._tags:
            if self._tags.is_open(before):
                return self._reasoning
            if not before.strip():
                return self._find_reasoning
        self._has_said = bool(self._answer_in(before).strip())
        return self._text if self._has_said else self._first

    def _replay(self, before: str) -> None:
        """Read a call that the log ends inside of from its start, so that this answer has all of it."""
        if self._state == self._reasoning:
            return
        before = self._answer_in(before)
        at, opener = max(((before.rfind(opener), opener) for opener in self._openers), default=(-1, ""))
        if at < 0:
            self._replay_bare(before)
            return
        ends = self._style.ends or self._style.closers
        if any(before.find(end, at + len(opener)) >= 0 for end in ends):
            return
        self._state, self._has_said = self._text, True
        self._run(before[at:])
        self._keep_open_call()

    def _replay_bare(self, before: str) -> None:
        if not (self._tools and self._style.is_bare_accepted and before.lstrip()[:1] in ("{", "`")):
            return
        self._state, self._has_said = self._first, False
        self._run(before)
        if not self._keep_open_call():
            self._call, self._state, self._has_said = None, self._text, True
            self._held, self._gap = "", []

    def _keep_open_call(self) -> bool:
        """Keep the parts of the call that is open. All others were told by the answer before this one."""
        is_open = bool(self._call and self._call.has_begun and not self._call.has_ended)
        starts = [place for place, part in enumerate(self._parts) if isinstance(part, CallStart)]
        self._parts = self._parts[starts[-1] :] if is_open else []
        return is_open

    def _answer_in(self, before: str) -> str:
        return before.rpartition(self._tags.closing)[2] if self._tags else before

    # ---- states: each takes text from `at` on and gives back where it stopped --------------------

    def _run(self, text: str) -> None:
        text, self._held, at = self._held + text, "", 0
        while at < len(text):
            at = self._state(text, at)

    def _find_reasoning(self, text: str, at: int) -> int:
        """Read the beginning of an answer: reasoning or not."""
        assert self._tags is not None
        at = self._skip(text, at)
        if at == len(text):
            return at
        if text.startswith(self._tags.opening, at):
            self._gap.clear()
            self._state = self._reasoning_first
            return at + len(self._tags.opening)
        if is_begun(text, at, self._tags.opening):
            return self._hold(text, at)
        self._state = self._first
        return at

    def _reasoning_first(self, text: str, at: int) -> int:
        self._state = self._reasoning
        return at + (text[at] == "\n")

    def _reasoning(self, text: str, at: int) -> int:
        assert self._tags is not None
        found = text.find(self._tags.closing, at)
        if found < 0:
            keep = begun(text, at, self._tags.ends)
            self._add_reasoning(text[at : len(text) - keep])
            return self._hold(text, len(text) - keep)
        self._add_reasoning(text[at : found - (found > at and text[found - 1] == "\n")])
        self._state, self._breaks = self._after_thought, 0
        return found + len(self._tags.closing)

    def _after_thought(self, text: str, at: int) -> int:
        """Skip the two line breaks behind reasoning, which belong to the template."""
        if text[at] == "\n" and self._breaks < 2:
            self._breaks += 1
            return at + 1
        self._state = self._first
        return at

    def _first(self, text: str, at: int) -> int:
        """Read the beginning of text, or text behind a bare call: it may be a call as a whole."""
        at = self._skip(text, at)
        if at == len(text):
            return at
        is_possible = self._style.is_bare_accepted and bool(self._tools)
        if is_possible and text[at] == "{":
            self._led, self._gap = self._gap, []
            self._begin_call(is_bare=True)
        elif is_possible and text[at] == "`":
            return self._fence(text, at)
        else:
            self._state = self._text
        return at

    def _fence(self, text: str, at: int) -> int:
        rest = text[at : at + len(JSON_FENCE) + 1]
        if JSON_FENCE.startswith(rest):
            return self._hold(text, at)
        size = len(JSON_FENCE) if rest.startswith(JSON_FENCE) else len(FENCE)
        if rest.startswith(FENCE) and rest[size] in " \t\r\n":
            self._led, self._gap = [*self._gap, rest[:size]], []
            self._state = self._fenced
            return at + size
        self._state = self._text
        return at

    def _fenced(self, text: str, at: int) -> int:
        end = past_space(text, at)
        self._led.append(text[at:end])
        if end < len(text):
            if text[end] == "{":
                self._begin_call(is_bare=True)
            else:
                self._add_held_text("".join(self._led))
                self._state = self._text
        return end

    def _text(self, text: str, at: int) -> int:
        if not self._has_said:
            at = self._skip(text, at)
        match = self._mark.search(text, at) if self._mark else None
        if not match:
            keep = begun(text, at, self._beginnings)
            self._add_text(text[at : len(text) - keep])
            return self._hold(text, len(text) - keep)
        found, mark = match.start(), match.group()
        if mark not in self._openers:
            return self._pass(text, at, found, mark)
        end = found
        while end > at and found - end < len(self._style.glue) and text[end - 1] == "\n":
            end -= 1
        self._add_text(text[at:end])
        behind = found if mark in self._style.kept else found + len(mark)
        self._led, self._gap = [*self._gap, text[end:behind]], []
        if self._style.lead:
            self._state = self._leading
        else:
            self._begin_call(is_bare=False)
        return behind

    def _pass(self, text: str, at: int, found: int, mark: str) -> int:
        """Read up to and past a marker that begins no call."""
        self._add_text(text[at:found])
        if mark not in self._style.dropped:
            self._gap.clear()
            self._state = self._reasoning_first
        return found + len(mark)

    def _leading(self, text: str, at: int) -> int:
        """Skip what may stand between an opener and its call."""
        if text[at] in self._style.lead or text[at].isspace():
            self._led.append(text[at])
            return at + 1
        self._begin_call(is_bare=False)
        return at

    def _read_call(self, text: str, at: int) -> int:
        assert self._call is not None
        call = self._call
        at = call.feed(text, at)
        self._collect_call()
        return at if call.is_over or call.is_wrong else self._hold(text, at)

    def _after(self, text: str, at: int) -> int:
        """Read behind a call: a closer, another call, or text."""
        at = past_space(text, at)
        if at == len(text):
            return at
        style = self._style
        closers = (*style.closers, *style.ends, *((FENCE,) if self._is_bare else ()))
        for closer in closers:
            if text.startswith(closer, at):
                if closer in style.ends or not style.ends:
                    self._state = self._first if self._is_bare else self._text
                return at + len(closer)
        if closers and is_begun(text, at, *closers):
            return self._hold(text, at)
        if text[at] in style.between:
            return at + 1
        if text[at] in style.again:
            self._led = []
            self._begin_call(is_bare=self._is_bare)
        else:
            self._state = self._text
        return at

    # ---- small steps -----------------------------------------------------------------------------

    def _begin_call(self, *, is_bare: bool) -> None:
        self._is_bare = is_bare
        self._call = self._style.read(self._tools, is_bare)
        self._state = self._read_call

    def _collect_call(self, held: str = "") -> None:
        """Collect the parts of the open call, and end it when it has ended."""
        call = self._call
        assert call is not None
        self._parts += call.take()
        if call.is_wrong:
            self._call, self._state = None, self._text
            text = "".join(self._led) + call.raw() + held
            words = text.lstrip()
            if mark := next((mark for mark in self._style.dropped if words == mark), ""):
                self._gap = [text.removesuffix(mark)]
                return
            if call.has_begun:
                self._parts.append(CallError(text))
                self._has_said = self._has_called = True
            else:
                self._add_held_text(text)
        elif call.is_over:
            self._call, self._state = None, self._after
            self._has_said, self._has_called = False, True

    def _skip(self, text: str, at: int) -> int:
        """Hold back white space until text follows."""
        end = past_space(text, at)
        if end > at and not self._has_called:
            self._gap.append(text[at:end])
        return end

    def _hold(self, text: str, at: int) -> int:
        self._held = text[at:]
        return len(text)

    def _add_held_text(self, text: str) -> None:
        """Add text that seemed to be a call. Its last line breaks may still precede another call."""
        size = len(text) - min(len(text) - len(text.rstrip("\n")), len(self._style.glue))
        self._add_text(text[:size])
        self._gap = [text[size:]]

    def _add_text(self, text: str, *, is_gap: bool = False) -> None:
        if not text:
            return
        if self._gap and not is_gap:
            text = "".join([*self._gap, text])
        self._gap = []
        self._has_said = True
        self._parts.append(TextPart(text))

    def _add_reasoning(self, text: str) -> None:
        if text:
            self._parts.append(ReasoningPart(text))

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return joined(parts)
