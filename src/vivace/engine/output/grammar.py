"""Constrained decoding: one `Constraint` for each turn says which tokens may come next.

Owns the constraints, and the model's vocabulary for llguidance (1 s of work for 152k tokens, done while idle
or for the first grammar). Needs only a model's token bytes and end tokens, so it works with any runner. Does
not sample (`sampler`), and compiles only grammars that were tried in another process first (`grammar_check`).
"""

import functools
import importlib.util
import itertools
import re
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vivace.engine.faults import ENDING
from vivace.engine.output.grammar_check import Checker, compile_grammar, refusal
from vivace.engine.output.sampler import Mask
from vivace.engine.runners.base import Runner
from vivace.engine.wire.frames import Grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

PIECES_AT_ONCE = 1000  # about 3 ms
FORCED_TOKENS = 64  # the longest draft that a grammar gives
FORCED_CHARACTERS = 6 * FORCED_TOKENS  # of text that must come next, what is worth tokenizing well
# How byte-level vocabularies cut text into words before they merge bytes: line breaks with the indentation
# that follows them (GPT-2, SmolLM2), or apart from it (Llama 3, Qwen).
_WORDS = re.compile(
    r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]{1,64}|\d| ?(?:[^\s\w]|_){1,64}|\s{1,64}(?!\S)|\s{1,64}|."
)
_WORDS_AND_LINES = re.compile(
    r"'(?i:[sdmt]|ll|ve|re)|(?:[^\r\n\w]|_)?[^\W\d_]{1,64}|\d| ?(?:[^\s\w]|_){1,64}[\r\n]{0,8}"
    r"|\s{0,64}[\r\n]{1,8}|\s{1,64}(?!\S)|\s{1,64}|."
)


class Grammars:
    """Compiles grammars for one runner. Any thread may call it; while it compiles, others run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._checker = Checker()
        self._prepared: tuple[Vocabulary, LLTokenizer] | None = None
        self._making: Iterator[None] | None = None  # what is done of it so far
        self._can_prepare = importlib.util.find_spec("llguidance") is not None
        self._lock = threading.Lock()

    def compile(self, grammar: Grammar) -> "Constraint":
        """Compile a grammar. Raise UsageError within a second if it is wrong, too large or too slow."""
        with self._lock:
            self._checker.check(grammar)
            vocabulary, tokenizer = self._prepare()
            return Constraint(grammar, compile_grammar(tokenizer, grammar), vocabulary)

    def prepare(self) -> bool:
        """Do one step towards the vocabulary, before a grammar needs it. Return whether more is left."""
        if not self._can_prepare or self._prepared:
            return False
        if not self._lock.acquire(blocking=False):
            return True  # whoever compiles now may do it all
        try:
            self._step()
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - nobody asked for it: who does will be told
            print(f"Grammars could not be prepared: {error!r}", file=sys.stderr)
            self._can_prepare = False
        finally:
            self._lock.release()
        return self._can_prepare and self._prepared is None

    def close(self) -> None:
        with self._lock:
            self._checker.close()

    def _prepare(self) -> "tuple[Vocabulary, LLTokenizer]":
        while self._prepared is None:
            self._step()
        return self._prepared

    def _step(self) -> None:
        self._making = self._making or self._make()
        try:
            next(self._making, None)
        except BaseException:
            self._making = None  # it begins anew
            raise

    def _make(self) -> Iterator[None]:
        """Prepare in steps of milliseconds. The last two are llguidance's own: 0.3 s for 152k tokens.

        Nothing else of this process runs in those: a thread would not help.
        """
        from llguidance import LLTokenizer

        yield
        pieces: list[bytes] = []
        info = self._runner.info
        while len(pieces) < info.vocab_size:
            next_ones = range(len(pieces), min(len(pieces) + PIECES_AT_ONCE, info.vocab_size))
            pieces += map(self._runner.token_bytes, next_ones)
            yield
        vocabulary = Vocabulary(pieces, info.end_tokens)
        yield
        plain = LLTokenizer(
            vocabulary,  # type: ignore[arg-type]  # it has all that a TokenizerWrapper has
            n_vocab=len(vocabulary.tokens),
            eos_token=vocabulary.end_ids.tolist(),
            slices=[],
        )
        yield
        self._prepared = vocabulary, plain.with_slices(LLTokenizer.general_slices())


class Vocabulary:
    """A model's tokens, and text as tokens: what llguidance asks for, by the names it uses."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, pieces: list[bytes], ends: frozenset[int]) -> None:
        controls = [token for token, piece in enumerate(pieces) if not piece or token in ends]
        for token in controls:
            pieces[token] = b""
        self._ids = {piece: token for token, piece in reversed(list(enumerate(pieces))) if piece}
        self.tokens = [piece or b"<|%d|>" % token for token, piece in enumerate(pieces)]
        self.special_token_ids = controls
        self.control_ids = np.array(controls, np.intp)
        self.end_ids = np.array(sorted(ends), np.intp)
        self.eos_token_id = int(self.end_ids[0])
        self._byte_ids = [self._ids.get(bytes([byte]), self.eos_token_id) for byte in range(256)]
        self._words = _WORDS if b"\n  " in self._ids else _WORDS_AND_LINES
        self._merged = functools.lru_cache(4096)(self._merge)

    def __call__(self, text: str) -> list[int]:
        """Tokenize text that must come next, as the model would. Never raise."""
        tokens: list[int] = []
        for word in self._words.findall(text[:FORCED_CHARACTERS]):
            tokens += self._merged(word)
        return tokens + [self._byte_ids[byte] for byte in text[FORCED_CHARACTERS:].encode()]

    def _merge(self, word: str) -> list[int]:
        """Merge byte pairs in the order of their token ids, which is the order of training."""
        parts = [bytes([byte]) for byte in word.encode()]
        while len(parts) > 1:
            pairs = [first + second for first, second in itertools.pairwise(parts)]
            best = min(pairs, key=lambda pair: self._ids.get(pair, len(self.tokens)))
            if best not in self._ids:
                break
            index = pairs.index(best)
            parts[index : index + 2] = [best]
        return [self._ids.get(part, self.eos_token_id) for part in parts]


class Constraint:
    """Where one turn is in its grammar. What goes wrong is a UsageError of that turn."""

    def __init__(self, grammar: Grammar, matcher: "LLMatcher", vocabulary: Vocabulary) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._vocabulary = vocabulary

    @property
    def is_complete(self) -> bool:
        """Return whether the output may end here."""
        return self._matcher.is_accepting()

    @property
    def is_stopped(self) -> bool:
        """Return whether the output must end here."""
        return self._matcher.is_stopped()

    def mask(self) -> Mask:
        """Return which tokens may come next. End tokens are allowed exactly where the output may end."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        vocabulary = self._vocabulary
        mask = np.unpackbits(bits, count=len(vocabulary.tokens), bitorder="little").view(np.bool_)
        mask[vocabulary.control_ids] = False
        mask[vocabulary.end_ids] = self.is_complete
        if not mask.any():
            raise refusal(self._grammar, "it asks for a control token")
        return mask

    def accept(self, token: int) -> None:
        """Advance the grammar by a token that was added to the log."""
        self._matcher.consume_token(token)
        self._check()

    def forced(self) -> list[int]:
        """Return tokens that must come next: a draft that is always accepted."""
        return [] if self.is_stopped else self._matcher.compute_ff_tokens()[:FORCED_TOKENS]

    def keep(self, draft: list[int]) -> list[int]:
        """Return the beginning of a draft that the grammar allows."""
        return draft[: self._matcher.validate_tokens(draft)]

    def _check(self) -> None:
        if self._matcher.is_error():
            raise refusal(self._grammar, self._matcher.get_error())
