"""Messages in a frame: what stands before, text, an end token. Common to ChatML, Llama 3 and Mistral.

Owns the order of messages, and the message that a log ends inside of: an answer that was interrupted, or one
that was begun for the model. It is closed before the next message and never rendered again. Does not own the
frame's tokens, nor how tools, calls and outputs are written: families do.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vivace.models.families.base import (
    Call,
    Effort,
    Entry,
    Message,
    Output,
    OutputSpec,
    Thought,
    Tool,
)
from vivace.models.families.interruption import tell_interruptions
from vivace.models.families.token_writer import TemplateText, TokenWriter, guarded, silent_markers
from vivace.models.tokenizer import Tokenizer

Pieces = Sequence[str]  # `TemplateText`, `ControlName`, or text of users, tools and models


class OpenMessage(NamedTuple):
    """The message that a log ends inside of."""

    role: str
    text: str


class FramedFamily:
    markers: tuple[str, ...] = ()  # words of the vocabulary that other text must not contain
    output_role = "user"
    has_outputs_together = True  # in one message
    notes: tuple[str, ...] = ()

    def __init__(self, tokenizer: Tokenizer, *, start: int, end: int, ends: tuple[int, ...] = ()) -> None:
        """`ends` are further tokens that end a message when a model writes them."""
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
        entries = tell_interruptions(entries, self.unfinished_request(after))
        writer = MessageWriter(self, after)
        first = entries[0] if entries else None
        has_system = isinstance(first, Message) and first.role == "system" and not first.is_open
        if tools or (entries and not after):
            given = first.text if has_system and isinstance(first, Message) else None
            if pieces := self.system(given, tools, is_first=not after):
                writer.write("system", pieces)
                entries = entries[has_system:]
        for entry in entries:
            writer.add(entry)
        return writer.tokens()

    def answer(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        writer = MessageWriter(self, log)
        before = self.unfinished_answer(log)
        if before is None:
            writer.begin("assistant")
        writer.append(self.opening(spec, before or ""))
        return writer.tokens()

    def end_thinking(self, log: Sequence[int], spec: OutputSpec) -> list[int]:  # noqa: ARG002
        return []

    def open_message(self, log: Sequence[int]) -> OpenMessage | None:
        """Return the message that the log ends inside of, as after an interrupt or a warm-up."""
        for index in range(len(log) - 1, -1, -1):
            if log[index] in self.stop_tokens:
                return None
            if log[index] == self.start:
                return self.split(log[index + 1 :])
        return None

    def unfinished_answer(self, log: Sequence[int]) -> str | None:
        """Return the text so far of the answer that the log ends inside of; None if there is none."""
        open_message = self.open_message(log)
        return open_message.text if open_message and open_message.role == "assistant" else None

    def unfinished_request(self, log: Sequence[int]) -> str:
        """Return the user's request that the unfinished answer is about; "" if there is no such answer."""
        if self.unfinished_answer(log) is None:
            return ""
        end = len(log)
        for index in range(len(log) - 1, -1, -1):
            if log[index] == self.start:
                role, text = self.split(log[index + 1 : end])
                if role == "user" and not self.is_output(log[index + 1 : end], text):
                    return text
                end = index
        return ""

    def is_output(self, tokens: Sequence[int], text: str) -> bool:  # noqa: ARG002
        """Return whether a message of the user's role is what tools answered."""
        return False

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.tokenizer.token_bytes, tokens)).decode("utf-8", "replace")

    # ---- the frame ---------------------------------------------------------------------------------

    def head(self, out: TokenWriter, role: str, *, is_first: bool) -> None:
        """Write what stands before a message's text."""
        raise NotImplementedError

    def end_of(self, role: str) -> int:  # noqa: ARG002
        """Return the token that ends a message of this role."""
        return self.end

    def split(self, tokens: Sequence[int]) -> OpenMessage:
        """Read a message from the token after `start`, without its end."""
        raise NotImplementedError

    # ---- what a family writes ---------------------------------------------------------------------

    def system(self, text: str | None, tools: Sequence[Tool], *, is_first: bool) -> Pieces:
        """Return the system message that begins a log or announces tools; empty if there is to be none."""
        raise NotImplementedError

    def call(self, call: Call, *, behind: str) -> Pieces:
        """Return a call. `behind` is what precedes it in the same answer: "", "text" or "call"."""
        raise NotImplementedError

    def output(self, output: Output, *, is_first: bool) -> Pieces:
        """Return a tool's output. `is_first`: in its message."""
        raise NotImplementedError

    def thought(self, text: str) -> Pieces:  # noqa: ARG002
        """Return reasoning before an answer; empty if the template does not show it again."""
        return ()

    def begun_answer(self) -> Pieces:
        """Return what stands before an answer that was begun for the model."""
        return ()

    def closing(self, text: str) -> Pieces:  # noqa: ARG002
        """Return what must be written before the end of an answer that stopped after `text`."""
        return ()

    def opening(self, spec: OutputSpec, before: str) -> Pieces:  # noqa: ARG002
        """Return the beginning of the answer that `spec` makes certain. The grammar begins behind it."""
        return ()


class MessageWriter:
    """Writes messages at the end of a log."""

    def __init__(self, family: FramedFamily, after: Sequence[int]) -> None:
        self._family = family
        self._out = TokenWriter(family.tokenizer, family.guarded)
        self._is_blank = not after
        self._left_open = family.open_message(after)  # by the log
        self._role = self._left_open.role if self._left_open else ""  # of the message that is open; "": none
        # What the open message ends with: "text" that goes on, text that is "said", a "call", an "output", a
        # "thought", or nothing yet.
        self._kind = ""
        if self._left_open and self._left_open.text:
            self._kind = "text"
        self._stays_open = True  # nothing was written, or a message that is to go on

    def write(self, role: str, pieces: Pieces) -> None:
        """Write a whole message."""
        self.begin(role)
        self._out.text(*pieces)
        self._kind, self._stays_open = "said", False

    def add(self, entry: Entry) -> None:
        match entry:
            case Message(role="assistant"):
                self._add_answer(entry)
            case Message():
                self.write(entry.role, [entry.text])
            case Call():
                if self._role != "assistant":
                    self.begin("assistant")
                behind = "text" if self._kind in ("text", "said") else self._kind
                self._out.text(*self._family.call(entry, behind=behind if behind != "thought" else ""))
                self._kind = "call"
            case Output():
                is_first = self._kind != "output" or not self._family.has_outputs_together
                if is_first:
                    self.begin(self._family.output_role)
                self._out.text(*self._family.output(entry, is_first=is_first))
                self._kind = "output"
            case Thought() if pieces := self._family.thought(entry.text):
                self._add_thought(pieces)
            case Thought():
                return
        self._stays_open = isinstance(entry, Message) and entry.is_open

    def begin(self, role: str) -> None:
        """Close the open message, and begin another."""
        self._close()
        self._family.head(self._out, role, is_first=self._is_blank)
        self._is_blank = False
        self._role, self._kind = role, ""
        if role == "assistant":
            self._out.cut()  # the model's text begins here

    def append(self, pieces: Pieces) -> None:
        """Write into the open message, before the model's own text."""
        self._out.text(*pieces)
        self._stays_open = True

    def tokens(self) -> list[int]:
        if not self._stays_open:
            self._close()
        return self._out.tokens()

    def _add_answer(self, message: Message) -> None:
        if self._role != "assistant" or self._kind == "said":
            self.begin("assistant")
            if message.is_open:
                self._out.text(*self._family.begun_answer())
                self._out.cut()
        elif self._kind == "call":
            self._out.text(TemplateText("\n"))
        self._out.text(message.text)
        self._kind = "text" if message.is_open else "said"

    def _add_thought(self, pieces: Pieces) -> None:
        if self._role != "assistant" or self._kind:
            self.begin("assistant")
        self._out.text(*pieces)
        self._out.cut()
        self._kind = "thought"

    def _close(self) -> None:
        if self._role:
            if self._left_open and self._role == "assistant" and self._kind in ("", "text"):
                self._out.text(*self._family.closing(self._left_open.text))
            self._out.control(self._family.end_of(self._role))
        self._role, self._kind, self._left_open = "", "", None
