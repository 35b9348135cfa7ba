"""Messages as tokens: our own words, text of others, and control tokens between them.

Owns one rule: text of others never becomes a token of the frame. `Tokenizer.encode` leaves control tokens
alone, but llama.cpp counts some markers as ordinary words of the vocabulary (Qwen's `<tool_call>`,
gpt-oss's `<|channel|>`) and would make a token of them wherever they stand. In text of others such a name
is cut in two.
"""

from collections.abc import Iterable, Sequence

from vivace.errors import StartError
from vivace.models.tokenizer import Tokenizer


class TemplateText(str):
    """Text of the template itself, whose markers are meant. Any other string is text of others."""

    __slots__ = ()


def guarded(tokenizer: Tokenizer, markers: Sequence[str]) -> tuple[str, ...]:
    """The markers that plain text would turn into one token of their own."""
    return tuple(name for name in markers if len(tokenizer.encode(name)) == 1)


def silent_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> dict[int, str]:
    """The markers that are one token without any text: whoever decodes must be told of them by name."""
    found: dict[int, str] = {}
    for name in markers:
        try:
            token = tokenizer.control(name)
        except (StartError, ValueError):  # here it is no token but plain text
            continue
        if not tokenizer.piece(token):
            found[token] = name
    return found


class Wording:
    """Tokens that are being put together. What stands side by side is encoded together, as templates do."""

    def __init__(self, tokenizer: Tokenizer, guarded: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._guarded = guarded
        self._tokens: list[int] = []
        self._run: list[str] = []  # text not encoded yet

    def text(self, *pieces: str) -> None:
        for piece in pieces:
            if isinstance(piece, TemplateText) or not any(name in piece for name in self._guarded):
                self._run.append(piece)
            else:
                self._quote(piece)

    def control(self, token: int) -> None:
        self.cut()
        self._tokens.append(token)

    def cut(self) -> None:
        """What comes next is encoded apart from what came before, as if the model had said it."""
        if text := "".join(self._run):
            self._tokens += self._tokenizer.encode(text)
        self._run = []

    def tokens(self) -> list[int]:
        self.cut()
        return self._tokens

    def _quote(self, text: str) -> None:
        """Text with markers in it: each is encoded in two halves, so that it stays text."""
        for chunk in _halved(text, self._guarded):
            self._run.append(chunk)
            self.cut()


def _halved(text: str, names: Sequence[str]) -> Iterable[str]:
    chunks = [text]
    for name in names:
        chunks = [part for chunk in chunks for part in _halved_at(chunk, name)]
    return chunks


def _halved_at(text: str, name: str) -> Iterable[str]:
    head, *rest = text.split(name)
    for part in rest:
        yield head + name[0]
        head = name[1:] + part
    yield head
