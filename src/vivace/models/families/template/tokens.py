"""A template's text as tokens: markers by name, everything else as plain text.

Owns how llama.cpp would cut the same text with its special tokens: white space that a marker takes with it,
the space that some vocabularies put before text. Text of users is not encoded as a marker, not even where
it meets the template's.
"""

from collections.abc import Iterable, Sequence

from vivace.models.families.template.masking import Markers
from vivace.models.families.token_writer import TemplateText, halved
from vivace.models.tokenizer import Marker, Tokenizer, Vocabulary

SPACE = " \t\n\r\v\f"


def markers_of(vocabulary: Vocabulary, texts: Iterable[str]) -> Markers:
    """Return the vocabulary's markers that a template writes, which is seen in these texts."""
    whole = "\n".join(texts)
    names = (name for name in vocabulary.markers if not name.isspace() and name in whole)
    ends = {vocabulary.bos, vocabulary.eos} & vocabulary.markers.keys()
    return Markers({*names, *ends})


class Tokens:
    """Collects tokens behind a log."""

    def __init__(self, tokenizer: Tokenizer, markers: Markers, after: Sequence[int]) -> None:
        vocabulary = tokenizer.vocabulary()
        self._tokenizer, self._known = tokenizer, vocabulary.markers
        self._guarded = [
            name for name in markers.names if name in self._known and not self._known[name].is_control
        ]
        self._by_token = {marker.token: marker for marker in self._known.values()}
        self._before = self._by_token.get(after[-1]) if after else None
        self._is_inside = bool(after) and self._before is None
        self._tokens: list[int] = []
        self._run: list[str] = []

    def write(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            marker = self._known.get(piece) if isinstance(piece, TemplateText) else None
            if marker:
                self._mark(marker)
            elif piece:
                self._run.append(piece)

    def cut(self) -> None:
        """Encode what follows apart from what came before, as text that the model wrote itself."""
        text, self._run = "".join(self._run), []
        if self._before and self._before.strips_right:
            text = text.lstrip(SPACE)
        if text:
            for chunk in halved(text, [name for name in self._guarded if name in text]):
                encode = self._tokenizer.encode_inside if self._is_inside else self._tokenizer.encode
                self._tokens += encode(chunk) if chunk else []
                self._before, self._is_inside = None, True

    def _mark(self, marker: Marker) -> None:
        if marker.strips_left and self._run:
            self._run = ["".join(self._run).rstrip(SPACE)]
        self.cut()
        self._tokens.append(marker.token)
        self._before, self._is_inside = marker, False

    def tokens(self) -> list[int]:
        self.cut()
        return self._tokens
