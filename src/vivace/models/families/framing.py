"""Messages in a frame: a head with the role, text, an end. What ChatML and Llama 3 have in common.

Owns the order of messages, and what is open where a log stops inside one: an answer that was interrupted,
or one that was begun for the model. It is closed before the next message, never rendered again. Does not
own the frame's tokens, nor how tools, calls and outputs are written: those are the families'.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vivace.models.families.base import (
    Call,
    Effort,
    Entry,
    Interruption,
    Message,
    Output,
    OutputSpec,
    Thought,
    Tool,
)
from vivace.models.families.interruption import INTERRUPTED, InterruptionText
from vivace.models.families.wording import TemplateText, Wording, guarded, silent_markers
from vivace.models.tokenizer import Tokenizer

Pieces = Sequence[str]  # `TemplateText` words, and text of others


class Opened(NamedTuple):
    """The message that a log stops in."""

    role: str
    text: str


class Framed:
    markers: tuple[str, ...] = ()  # words of the vocabulary that text of others must not contain
    output_role = "user"
    has_outputs_together = True  # in one message
    interruption: InterruptionText = INTERRUPTED

    def __init__(self, tokenizer: Tokenizer, *, start: int, end: int, ends: tuple[int, ...] = ()) -> None:
        """`ends` are tokens that end a message too, if a model says them."""
        self.tokenizer = tokenizer
        self.guarded = guarded(tokenizer, self.markers)
        self.controls = silent_markers(tokenizer, self.markers)
        self.start, self.end = start, end
        self.stop_tokens: tuple[int, ...] = (end, *ends)

    def render(
        self,
        entries: Sequence[Entry],
        *,
        tools: Sequence[Tool] = (),
        after: Sequence[int] = (),
        effort: Effort = "",  # noqa: ARG002
    ) -> list[int]:
        page = Page(self, after)
        first = entries[0] if entries else None
        has_system = isinstance(first, Message) and first.role == "system" and not first.is_open
        if tools or (entries and not after):
            given = first.text if has_system and isinstance(first, Message) else None
            if pieces := self.system(given, tools, is_first=not after):
                page.write("system", pieces)
                entries = entries[has_system:]
        for entry in entries:
            page.add(entry)
        return page.tokens()

    def answer(self, log: Sequence[int], wish: OutputSpec) -> list[int]:
        page = Page(self, log)
        before = self.said_in(log)
        if before is None:
            page.begin("assistant")
        page.go_on(self.opening(wish, before or ""))
        return page.tokens()

    def opened(self, log: Sequence[int]) -> Opened | None:
        """The message that the log stops in, as after an interrupt or a warm-up."""
        for index in range(len(log) - 1, -1, -1):
            if log[index] in self.stop_tokens:
                return None
            if log[index] == self.start:
                return self.split(log[index + 1 :])
        return None

    def said_in(self, log: Sequence[int]) -> str | None:
        """What the answer that the log stops in has in it; None if it stops in none."""
        opened = self.opened(log)
        return opened.text if opened and opened.role == "assistant" else None

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.tokenizer.piece, tokens)).decode("utf-8", "replace")

    # ---- the frame ---------------------------------------------------------------------------------

    def head(self, wording: Wording, role: str, *, is_first: bool) -> None:
        """What stands before a message's text."""
        raise NotImplementedError

    def split(self, tokens: Sequence[int]) -> Opened:
        """A message without its end, from behind `start`."""
        raise NotImplementedError

    # ---- what a family writes ---------------------------------------------------------------------

    def system(self, text: str | None, tools: Sequence[Tool], *, is_first: bool) -> Pieces:
        """The system message with which a log begins, or in which tools are told of; nothing: none."""
        raise NotImplementedError

    def call(self, call: Call, *, behind: str) -> Pieces:
        """A call, behind nothing, "text" or another "call" of the same answer."""
        raise NotImplementedError

    def output(self, output: Output, *, is_first: bool) -> Pieces:
        """What a tool answered, the first in its message or not."""
        raise NotImplementedError

    def thought(self, text: str) -> Pieces:  # noqa: ARG002
        """Reasoning before an answer; nothing: it is not shown again."""
        return ()

    def begun_answer(self) -> Pieces:
        """What stands before an answer that was begun for the model."""
        return ()

    def closing(self, text: str) -> Pieces:  # noqa: ARG002
        """What an answer needs that stopped after this text, before it can end."""
        return ()

    def opening(self, wish: OutputSpec, before: str) -> Pieces:  # noqa: ARG002
        """What stands before the answer so that it is what was wished for. `grammar` begins behind it."""
        return ()


class Page:
    """Messages at the end of a log."""

    def __init__(self, family: Framed, after: Sequence[int]) -> None:
        self._family = family
        self._wording = Wording(family.tokenizer, family.guarded)
        self._is_blank = not after
        self._left_open = family.opened(after)  # by the log
        self._role = self._left_open.role if self._left_open else ""  # of the message that is open; "": none
        # What the open message ends with: "text" that goes on, text that is "said", a "call", an "output", a
        # "thought", or nothing yet.
        self._kind = ""
        if self._left_open and self._left_open.text:
            self._kind = "text"
        self._stays_open = True  # nothing was written, or a message that is to go on
        self._has_answer = self._role == "assistant"  # the last message that is not the system's
        self._is_interrupted = False  # the user's next message interrupts the answer before it

    def write(self, role: str, pieces: Pieces) -> None:
        """A message from its beginning to its end."""
        self.begin(role)
        self._wording.text(*pieces)
        self._kind, self._stays_open = "said", False

    def add(self, entry: Entry) -> None:
        match entry:
            case Interruption():
                self._is_interrupted = self._has_answer
                return
            case Message(role="assistant"):
                self._add_answer(entry)
            case Message(role="user") if self._is_interrupted:
                text = self._family.interruption
                self.write("user", [text.before, entry.text, text.after])
                self._is_interrupted = False
            case Message():
                self.write(entry.role, [entry.text])
            case Call():
                if self._role != "assistant":
                    self.begin("assistant")
                behind = "text" if self._kind in ("text", "said") else self._kind
                self._wording.text(*self._family.call(entry, behind=behind if behind != "thought" else ""))
                self._kind = "call"
            case Output():
                is_first = self._kind != "output" or not self._family.has_outputs_together
                if is_first:
                    self.begin(self._family.output_role)
                self._wording.text(*self._family.output(entry, is_first=is_first))
                self._kind = "output"
            case Thought() if pieces := self._family.thought(entry.text):
                self._add_thought(pieces)
            case Thought():
                return
        if not (isinstance(entry, Message) and entry.role == "system"):
            self._has_answer = self._role == "assistant"
        self._stays_open = isinstance(entry, Message) and entry.is_open

    def begin(self, role: str) -> None:
        """Close what is open, and begin a message."""
        self._close()
        self._family.head(self._wording, role, is_first=self._is_blank)
        self._is_blank = False
        self._role, self._kind = role, ""
        if role == "assistant":
            self._wording.cut()  # the model speaks from here on

    def go_on(self, pieces: Pieces) -> None:
        """Our own words in the message that is open, before the model speaks."""
        self._wording.text(*pieces)
        self._stays_open = True

    def tokens(self) -> list[int]:
        if not self._stays_open:
            self._close()
        return self._wording.tokens()

    def _add_answer(self, message: Message) -> None:
        if self._role != "assistant" or self._kind == "said":
            self.begin("assistant")
            if message.is_open:
                self._wording.text(*self._family.begun_answer())
                self._wording.cut()
        elif self._kind == "call":
            self._wording.text(TemplateText("\n"))
        self._wording.text(message.text)
        self._kind = "text" if message.is_open else "said"

    def _add_thought(self, pieces: Pieces) -> None:
        if self._role != "assistant" or self._kind:
            self.begin("assistant")
        self._wording.text(*pieces)
        self._wording.cut()
        self._kind = "thought"

    def _close(self) -> None:
        if self._role:
            if self._left_open and self._role == "assistant" and self._kind in ("", "text"):
                self._wording.text(*self._family.closing(self._left_open.text))
            if self._is_interrupted and self._role == "assistant":
                self._wording.cut()
                self._wording.text(self._family.interruption.cut)
            self._wording.control(self._family.end)
        self._role, self._kind, self._left_open = "", "", None
