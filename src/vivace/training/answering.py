"""Greedy answers to many prompts at once, with and without an adapter.

Owns the decoding: rows side by side, padded in front, until each has ended. For measuring adapters; users are
served by the engine. Does not judge (`judging`).
"""

import time
from collections.abc import Collection, Sequence

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.training.adapter import Adapter
from vivace.training.decoder import Decoder

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
) -> list[list[int]]:
    """Return each prompt's answer without what stopped it. `until`: when the clock ends all answers."""
    rounded = adapter.rounded(decoder.dtype) if adapter else None
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))  # little padding
    answers: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), at_once):
        part = order[start : start + at_once]
        written = _write(decoder, rounded, [prompts[index] for index in part], stops, most_tokens, until)
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
) -> list[list[int]]:
    device, rows, width = decoder.device, len(prompts), max(map(len, prompts))
    tokens = torch.zeros(rows, width, dtype=torch.long)
    is_real = torch.zeros(rows, width + most_tokens, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(prompt)
        is_real[row, width - len(prompt) :] = True
    tokens, is_real = tokens.to(device), is_real.to(device)
    positions = (is_real[:, :width].long().cumsum(1) - 1).clamp(min=0)
    mask = torch.ones(width, width, dtype=torch.bool, device=device).tril() & is_real[:, None, None, :width]
    mask = mask | torch.eye(width, dtype=torch.bool, device=device)  # padding sees itself: no empty softmax
    cache = decoder.new_cache(rows, width + most_tokens)
    states = decoder.hidden(tokens, positions, mask, adapter, cache)[:, -1]
    stopping = torch.tensor(sorted(stops), device=device)
    has_ended = torch.zeros(rows, dtype=torch.bool, device=device)
    said: list[torch.Tensor] = []
    for step in range(most_tokens):
        chosen = decoder.logits(states).argmax(-1)
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


def _until_stop(tokens: list[int], stops: Collection[int]) -> list[int]:
    """Return the tokens before the first that stops, and that one: it may hold the last text."""
    for at, token in enumerate(tokens):
        if token in stops:
            return tokens[: at + 1]
    return tokens
