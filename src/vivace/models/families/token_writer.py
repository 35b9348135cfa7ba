"""Text to tokens for chat templates: template text, other text, and control tokens between them.

Owns one rule: text of users, tools and models never becomes a token of the template. `Tokenizer.encode`
leaves control tokens alone, but llama.cpp treats some markers as ordinary words of the vocabulary (Qwen's
`<tool_call>`, gpt-oss's `<|channel|>`) and encodes them as one token anywhere. In other text such a name is
cut in two.
"""

from collections.abc import Iterable, Sequence

from vivace.errors import StartError
from vivace.models.tokenizer import Tokenizer


class TemplateText(str):
    """Text of the template itself, in which markers are tokens. In any other string they are text."""

    __slots__ = ()


class ControlName(str):
    """The name of a control token that stands in the middle of a message."""

    __slots__ = ()


def guarded(tokenizer: Tokenizer, markers: Sequence[str]) -> tuple[str, ...]:
    """Return the markers that `encode` turns into one token."""
    return tuple(name for name in markers if len(tokenizer.encode(name)) == 1)


def silent_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> dict[int, str]:
    """Return the markers that are one token without text, by token: a decoder sees nothing of them."""
    found: dict[int, str] = {}
    for name in markers:
        try:
            token = tokenizer.control(name)
        except (StartError, ValueError):  # here it is no token but plain text
            continue
        if not tokenizer.token_bytes(token):
            found[token] = name
    return found


class TokenWriter:
    """Collects tokens. Adjacent texts are encoded together, as chat templates do."""

    def __init__(self, tokenizer: Tokenizer, guarded: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._guarded = guarded
        self._tokens: list[int] = []
        self._run: list[str] = []  # text not encoded yet

    def text(self, *pieces: str) -> None:
        for piece in pieces:
            if isinstance(piece, ControlName):
                self.control(self._tokenizer.control(piece))
            elif isinstance(piece, TemplateText) or not any(name in piece for name in self._guarded):
                self._run.append(piece)
            else:
                self._quote(piece)

    def control(self, token: int) -> None:
        self.cut()
        self._tokens.append(token)

    def cut(self) -> None:
        """Encode what follows apart from what came before, as text that the model wrote itself."""
        if text := "".join(self._run):
            self._tokens += self._tokenizer.encode(text)
        self._run = []

    def tokens(self) -> list[int]:
        self.cut()
        return self._tokens

    def _quote(self, text: str) -> None:
        """Write text with markers in it. Each marker is encoded in two halves, so that it stays text."""
        for chunk in halved(text, self._guarded):
            self._run.append(chunk)
            self.cut()


def halved(text: str, names: Sequence[str]) -> Iterable[str]:
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
