"""Answers to many prompts at once, with and without an adapter.

Owns the decoding: rows side by side, padded in front, until each has ended. For measuring adapters; users are
served by the engine. Does not judge (`judging`).
"""

import time
from collections.abc import Callable, Collection, Sequence

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.training.adapter import Adapter
from vivace.training.decoder import Cache, Decoder

READ_AT_ONCE = 64  # prompts
LOOK_EVERY = 16  # steps between two looks at whether all have ended: a look waits for the GPU


@torch.no_grad()
def write_answers(
    decoder: Decoder,
    adapter: Adapter | None,
    prompts: Sequence[Sequence[int]],
    stops: Collection[int],
    most_tokens: int,
    *,
    at_once: int = 256,
    until: float = float("inf"),
    temperature: float = 0.0,
    seed: int = 1,
) -> list[list[int]]:
    """Return each prompt's answer, up to what stopped it. `until`: when the clock ends all answers.

    Greedy at temperature 0; otherwise the same seed and order give the same answers.
    """
    chance = torch.Generator(decoder.device).manual_seed(seed)
    rounded = adapter.rounded(decoder.dtype) if adapter else None
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))  # little padding
    answers: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), at_once):
        part = order[start : start + at_once]
        written = _write(
            *(decoder, rounded, [prompts[index] for index in part], stops, most_tokens, until),
            lambda logits: _choose(logits, temperature, chance),
        )
        for index, answer in zip(part, written, strict=True):
            answers[index] = answer
    return answers


def _write(
    decoder: Decoder,
    adapter: Adapter | None,
    prompts: Sequence[Sequence[int]],
    stops: Collection[int],
    most_tokens: int,
    until: float,
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> list[list[int]]:
    device, rows, width = decoder.device, len(prompts), max(map(len, prompts))
    tokens = torch.zeros(rows, width, dtype=torch.long)
    is_real = torch.zeros(rows, width + most_tokens, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(prompt)
        is_real[row, width - len(prompt) :] = True
    tokens, is_real = tokens.to(device), is_real.to(device)
    positions = (is_real[:, :width].long().cumsum(1) - 1).clamp(min=0)
    first_of = {tuple(prompt): row for row, prompt in reversed(list(enumerate(prompts)))}
    read = sorted(first_of.values())  # each different prompt is read once
    cache = decoder.new_cache(len(read), width + most_tokens)
    states = _read(decoder, adapter, tokens[read], positions[read], is_real[read, :width], cache)
    if len(read) < rows:
        number = {row: at for at, row in enumerate(read)}
        which = torch.tensor([number[first_of[tuple(prompt)]] for prompt in prompts], device=device)
        cache, states = Cache(cache.held[:, :, which]), states[which]
    stopping = torch.tensor(sorted(stops), device=device)
    has_ended = torch.zeros(rows, dtype=torch.bool, device=device)
    said: list[torch.Tensor] = []
    for step in range(most_tokens):
        chosen = choose(decoder.logits(states))
        said.append(chosen)
        has_ended |= torch.isin(chosen, stopping)
        is_looked = step % LOOK_EVERY == LOOK_EVERY - 1
        if step == most_tokens - 1 or (is_looked and (bool(has_ended.all()) or time.monotonic() > until)):
            break
        at = width + step
        where = positions[:, -1:] + step + 1
        states = decoder.hidden(chosen[:, None], where, is_real[:, None, None, : at + 1], adapter, cache, at)[
            :, -1
        ]
    found = torch.stack(said, dim=1).tolist()
    return [_until_stop(row, stops) for row in found]


def _read(
    decoder: Decoder,
    adapter: Adapter | None,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    is_real: torch.Tensor,
    cache: Cache,
) -> torch.Tensor:
    """Put the prompts into the cache, some rows at a time; return the states of their last tokens."""
    rows, width = tokens.shape
    earlier = torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()
    itself = torch.eye(width, dtype=torch.bool, device=tokens.device)  # padding's softmax is not empty
    found = []
    for start in range(0, rows, READ_AT_ONCE):
        part = slice(start, start + READ_AT_ONCE)
        mask = (earlier & is_real[part, None, None]) | itself
        held = Cache(cache.held[:, :, part])
        found.append(decoder.hidden(tokens[part], positions[part], mask, adapter, held)[:, -1])
    return torch.cat(found)


def _choose(logits: torch.Tensor, temperature: float, chance: torch.Generator) -> torch.Tensor:
    if not temperature:
        return logits.argmax(-1)
    shares = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(shares, 1, generator=chance)[:, 0]


def _until_stop(tokens: list[int], stops: Collection[int]) -> list[int]:
    """Return the tokens before the first that stops, and that one: it may hold the last text."""
    for at, token in enumerate(tokens):
        if token in stops:
            return tokens[: at + 1]
    return tokens
