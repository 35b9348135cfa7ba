"""Refuse invalid requests before anything is changed.

Owns the limits of a single request. Does not own scheduling (`scheduler`), or the limits of a grammar
(`grammar`).
"""

import struct

import numpy as np

from vivace.engine.output.sampler import check_sampling
from vivace.engine.runners.base import ModelInfo
from vivace.engine.turns.score import SCORE_TOKENS
from vivace.engine.wire.frames import Append, Generate, Score
from vivace.errors import ContextOverflow, UsageError

MAX_STOPS, MAX_STOP_CHARACTERS = 64, 4096
MAX_CANDIDATES = 4096


def check_work(work: Append | Generate | Score, committed_tokens: int, info: ModelInfo) -> None:
    """Raise if this work cannot be done on a session that has `committed_tokens`."""
    check_tokens(work.tokens, info)
    length = committed_tokens + len(work.tokens)
    needed = length + (not isinstance(work, Append))
    if needed > info.limit_tokens:
        raise ContextOverflow(f"{needed} tokens are needed, and the context holds {info.limit_tokens}.")
    if length == 0 and not isinstance(work, Append):
        raise UsageError("There is nothing to go on from: the session is empty.")
    if not isinstance(work, Score) and not 0 <= work.kept_tokens <= length:
        raise UsageError(f"kept_tokens is {work.kept_tokens}; the log has {length} tokens.")
    if isinstance(work, Generate):
        _check_generate(work, length, info)
    elif isinstance(work, Score):
        _check_score(work, length, info)


def check_tokens(tokens: list[int], info: ModelInfo) -> None:
    """Refuse ids that the model does not have.

    A long prompt waits for it: 4,096 ids take 65 µs on an ARM core, the least and the greatest of a list 170.
    """
    try:
        words = struct.pack(f"{len(tokens)}I", *tokens)
    except struct.error:  # below 0, or beyond 32 bits
        words = b"\xff" * 4
    if words and np.frombuffer(words, np.uint32).max() >= info.vocab_size:
        raise UsageError(f"Token ids must be from 0 to {info.vocab_size - 1}.")


def _check_generate(work: Generate, length: int, info: ModelInfo) -> None:
    if work.max_tokens < 1:
        raise UsageError(f"max_tokens is {work.max_tokens}; at least 1 is needed.")
    if len(work.stop) > MAX_STOPS or not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in work.stop):
        raise UsageError(f"stop takes up to {MAX_STOPS} strings of 1 to {MAX_STOP_CHARACTERS} characters.")
    if len(work.stop_tokens) > MAX_STOPS:
        raise UsageError(f"stop_tokens takes up to {MAX_STOPS} tokens.")
    if not 0 <= work.prior_output_tokens <= length:
        raise UsageError(f"prior_output_tokens is {work.prior_output_tokens}; the log has {length} tokens.")
    check_sampling(work.sampling, info.vocab_size)
    check_tokens(work.prediction, info)


def _check_score(work: Score, length: int, info: ModelInfo) -> None:
    if len(work.candidates) > MAX_CANDIDATES:
        raise UsageError(f"Of {len(work.candidates)} candidates at most {MAX_CANDIDATES} can be scored.")
    longest = max(map(len, work.candidates), default=0)
    if longest > SCORE_TOKENS or length + longest > info.limit_tokens:
        raise UsageError(f"A candidate of {longest} tokens is too long to be scored.")
    for candidate in work.candidates:
        check_tokens(candidate, info)
