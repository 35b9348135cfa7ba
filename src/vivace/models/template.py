"""Chat templates: which tokens frame a message. One family so far, ChatML (Qwen2.5, SmolLM2).

Owns the tokens around messages. Does not own history: a session's log is never rendered again, so what
comes after a turn is only ever *appended* (law 1). Message text is encoded as plain text: a file that
contains `<|im_end|>` cannot end a message.
"""

from collections.abc import Sequence

import msgspec

from vivace.models.tokenizer import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"


class Message(msgspec.Struct, frozen=True):
    role: str  # system, user or assistant
    text: str
    is_open: bool = False  # an assistant message that the model is to continue


class ChatML:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._start, self._end = tokenizer.control(START), tokenizer.control(END)

    def render(self, messages: Sequence[Message], *, after: Sequence[int] = ()) -> list[int]:
        """Tokens of `messages`, to be appended to the log `after`.

        A first message of the assistant's goes on inside an assistant message that the log left open.
        A last message that is open is left without its end, so that the model goes on inside it.
        """
        tokens: list[int] = []
        for message in messages:
            log = tokens or after
            if not (message.role == "assistant" and self._is_inside_message(log)):
                tokens += self._open(message.role, log)
            tokens += self._tokenizer.encode(message.text)
            if not message.is_open:
                tokens.append(self._end)
        return tokens

    def answer(self, log: Sequence[int]) -> list[int]:
        """Tokens after which the model speaks: none if `log` stops inside the message it is to continue."""
        return [] if self._is_inside_message(log) else self._open("assistant", log)

    def _open(self, role: str, log: Sequence[int]) -> list[int]:
        """Close what `log` left open, then begin a message."""
        between: list[int] = []
        if log:
            between = [self._end] if self._is_inside_message(log) else []
            between += self._tokenizer.encode("\n")
        return [*between, self._start, *self._tokenizer.encode(f"{role}\n")]

    def _is_inside_message(self, log: Sequence[int]) -> bool:
        """Whether the log stops between a start and its end, as after an interrupt or a warm-up."""
        for token in reversed(log):
            if token in (self._start, self._end):
                return token == self._start
        return False
