"""The prompts that are not edits: of an exact length and never seen before, or with a long answer.

Owns their tokens. Every one is drawn from the run's own random numbers, so that no prefix is in any cache.
"""

import random

from vivace.models.families.base import Family, Message, OutputSpec
from vivace.models.tokenizer import Tokenizer

TEXT = (
    "the function reads a file and returns its lines sorted by name then each value is added to total when "
    "index passes count we close it and keep the error for later so that no caller waits on lock or queue "
    "please check whether parser token buffer list dict class method argument type default result cache "
    "thread server client request answer retry limit path folder test case branch merge commit review"
)
WORDS = TEXT.split()
LONG_ANSWER = "Write the numbers from 1 to 400 in words, one on each line, and nothing else."
SYSTEM = "You are a careful programmer. You answer with code and few words."
STEER = "Stop counting. Instead, write a Python function that adds two numbers."
FOLLOW_UP = "Now do the same from 400 down to 1, and put a comma behind each word."


class Prompts:
    def __init__(self, tokenizer: Tokenizer, template: Family, seed: int) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.random = random.Random(seed)

    def fresh(self, tokens: int) -> list[int]:
        """Return a new prompt of exactly `tokens` tokens, up to the beginning of the answer."""
        opened = self._template.render([Message("user", "", is_open=True)])
        framed = self.message("")
        body = self._tokenizer.encode(self.text(tokens))[: tokens - len(framed)]
        return opened + body + framed[len(opened) :]

    def text(self, tokens: int) -> str:
        """Return `tokens` random words: at least as many tokens."""
        return " ".join(self.random.choices(WORDS, k=tokens))

    def message(self, text: str, *, after: list[int] | None = None) -> list[int]:
        """Return a user's message behind the log `after`, and the beginning of the answer."""
        log = after or []
        tokens = self._template.render([Message("user", text)], after=log)
        return tokens + self._template.answer(log + tokens, OutputSpec())

    def typed(self, text: str, *, after: list[int]) -> list[int]:
        """Return a user's message that is still being typed: it has no end."""
        return self._template.render([Message("user", text, is_open=True)], after=after)

    def system(self) -> list[int]:
        return self._template.render([Message("system", SYSTEM)])
