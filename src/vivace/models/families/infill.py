"""Filling a gap: the control tokens with which a model was taught to write between a prefix and a suffix.

Owns the spellings that we know, the order of a prompt, and the parser of its answer: text, nothing else. A
model can fill gaps if its vocabulary has all three tokens, whatever its chat format. Does not own how much of
a file is read (`server.conversation.infill_prompt`).
"""

from typing import NamedTuple

from vivace.errors import StartError
from vivace.models.families.base import Part, TextPart
from vivace.models.tokenizer import Tokenizer

SPELLINGS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, Qwen3-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
)


class InfillTokens(NamedTuple):
    prefix: int
    suffix: int
    middle: int

    def prompt(self, before: list[int], behind: list[int], begun: list[int]) -> list[int]:
        """Return the prompt for what stands before and behind the gap, in the order of the training.

        `begun` is the beginning of the middle, which the model goes on with.
        """
        return [self.prefix, *before, self.suffix, *behind, self.middle, *begun]


def infill_tokens(tokenizer: Tokenizer) -> InfillTokens | None:
    """Return the model's tokens for filling gaps, or None if it has none."""
    for names in SPELLINGS:
        try:
            return InfillTokens(*map(tokenizer.control, names))
        except (StartError, ValueError):
            continue
    return None


class TextParser:
    """A parser for which everything is text, of which the first characters are left out."""

    marker_starts: frozenset[str] = frozenset()

    def __init__(self, left_out_chars: int = 0) -> None:
        self._left_out = left_out_chars

    @property
    def plain(self) -> type[TextPart] | None:
        return None if self._left_out else TextPart

    def feed(self, text: str) -> list[Part]:
        shown = text[self._left_out :]
        self._left_out = max(0, self._left_out - len(text))
        return [TextPart(shown)] if shown else []

    def control(self, name: str) -> list[Part]:
        """Return nothing: a control token in the middle of code says nothing."""
        del name
        return []

    def finish(self) -> list[Part]:
        return []
