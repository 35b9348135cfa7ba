"""Other answers to the same request: the first one again, turned at the places where it was least sure.

A small model that must change one token of many mostly has the right one in second place. So the first
answer's next-best tokens are tried, the likeliest first, each continued greedily: this finds better answers
than as many samples do. Owns the places and the requests. Does not choose (`check.choose`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vivace.agent.edits.write.rewrite import Rewrite
from vivace.agent.model import Model, WrittenToken
from vivace.agent.prompting import begun_answer

ALTERNATIVES = 4  # the likeliest tokens of each place that are looked at


@dataclass(frozen=True)
class Branch:
    """The beginning of another answer: the first answer up to some place, and another token there."""

    text: str
    nats: float  # log-probability of all of it
    tokens: int
    rest: str  # what the first answer had behind that place


@dataclass(frozen=True)
class Answer:
    """A whole answer, behind the request's opening."""

    text: str
    nats_per_token: float


async def write_others(model: Model, request: Rewrite, first: str, count: int) -> list[Answer]:
    """Return the first answer, now with its likelihood, and up to `count` others.

    The others are written at the same time, in passes that they share, from a KV that they share. Return
    nothing if the server tells no likelihoods.
    """
    written = await model.write_tokens(
        request.messages,
        max_tokens=request.max_tokens,
        stop=request.stop,
        prediction=first + request.fence,
        alternatives=ALTERNATIVES,
    )
    if not written.tokens:
        return []
    branches = find_branches(written.tokens, count)
    writing = [_continued(model, request, branch, number) for number, branch in enumerate(branches)]
    others = await asyncio.gather(*writing)
    likelihood = written.nats / len(written.tokens)
    return [Answer(first, likelihood), *(each for each in others if each is not None)]


def find_branches(tokens: Sequence[WrittenToken], count: int) -> list[Branch]:
    """Return the beginnings to try, the likeliest turn first."""
    turns = []
    for place, token in enumerate(tokens):
        for text, nats in token.others:
            if _is_text(text):
                turns.append((nats - token.nats, -place, text, nats))
    turns.sort(reverse=True)
    found = []
    for _, place, text, nats in turns[:count]:
        before = tokens[:-place]
        begun = "".join(token.text for token in before) + text
        rest = "".join(token.text for token in tokens[1 - place :])
        found.append(Branch(begun, sum(token.nats for token in before) + nats, len(before) + 1, rest))
    return found


def _is_text(token: str) -> bool:
    """Return whether a token can stand in a file: no control characters, no part of a character."""
    return bool(token) and "\ufffd" not in token and (token.isspace() or token.strip().isprintable())


async def _continued(model: Model, request: Rewrite, branch: Branch, number: int) -> Answer | None:
    """Write a branch to its end. Return None if it does not end."""
    *asked, begun = request.messages
    changed = replace(request, messages=[*asked, begun_answer(begun["content"] + branch.text)])
    written = await model.write_tokens(
        changed.messages,
        max_tokens=max(1, request.max_tokens - branch.tokens),
        stop=request.stop,
        prediction=branch.rest + request.fence,
        lane=f"branch-{number}",
    )
    if written.was_cut:
        return None
    nats, tokens = branch.nats + written.nats, branch.tokens + len(written.tokens)
    return Answer(branch.text + written.text, nats / tokens)
