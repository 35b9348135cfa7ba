"""One sequence decoded without the host: steps run ahead on the device, the host polls a ring.

Owns a running stream: how many steps are in flight, which tokens have come, when it ends. The engine
calls `poll` between its other work and `stop` whenever it likes; at most the steps in flight are then
thrown away. Tokens are chosen on the device, greedily or with the draws of engine/sampler.py at
temperature alone; anything else (top_p, penalties, grammars) needs the logits on the host, and so
`forward`.
"""

import struct
from collections.abc import Sequence

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.chain import (
    ACTIVE,
    COUNT,
    MOST_STOPS,
    POSITION,
    REMAINING,
    RING_WORDS,
    SEED,
    SEED_HIGH,
    STATE_WORDS,
    STOP,
    STOPS,
    TEMPERATURE,
)
from vivace.engine.runners.cuda.graphs import Passes

DEPTH = 3  # steps in flight: the host may be late by two of them before the device waits


class DecodeStream:
    def __init__(
        self,
        passes: Passes,
        token: int,
        position: int,
        *,
        most_tokens: int,
        stops: Sequence[int] = (),
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`token` goes to `position`; up to `most_tokens` follow, the last of them any of `stops`."""
        assert len(stops) <= MOST_STOPS
        assert 0 < most_tokens <= RING_WORDS
        self._passes, self._pass = passes, passes.sized(1)
        self._position, self._most = position, most_tokens
        self._stops = frozenset(stops)
        self._sent = self._seen = 0
        self._is_done = False
        self._ring = passes.ring.numpy()
        self._prepare_graphs()
        self._write_state(token, stops, temperature, seed)

    def _prepare_graphs(self) -> None:
        if not self._passes.ring.is_pinned():
            return
        plan = self._pass.plan
        lengths = range(self._position + 1, self._position + self._most + 1)
        for parts in {plan.parts_for(lengths[0]), plan.parts_for(lengths[-1])} | {
            plan.parts_for(each) for each in lengths[:: 64 * 8]
        }:
            self._passes.prepare(self._pass, parts, streams=True)

    def _write_state(self, token: int, stops: Sequence[int], temperature: float, seed: int) -> None:
        self._ring[: self._most] = 0
        staging = self._pass.staging
        staging.zero_()
        staging[POSITION], staging[COUNT], staging[ACTIVE], staging[REMAINING] = (
            self._position,
            1,
            1,
            self._most,
        )
        staging[SEED], staging[SEED_HIGH] = _signed(seed), _signed(seed >> 32)
        staging[TEMPERATURE] = struct.unpack("<i", struct.pack("<f", temperature))[0]
        staging[STOPS] = len(stops)
        staging[STOP : STOP + len(stops)] = torch.tensor(list(stops), dtype=torch.int32)
        staging[STATE_WORDS] = token
        self._pass.buffers.inputs.copy_(staging, non_blocking=True)
        self._passes.embed(self._pass)

    @property
    def is_done(self) -> bool:
        return self._is_done

    def poll(self) -> list[int]:
        """Keep the device busy, and give the tokens that have come since the last call."""
        while not self._is_done and self._sent < min(self._seen + DEPTH, self._most):
            self._sent += 1
            self._passes.replay(self._pass, self._position + self._sent, streams=True)
        return self._take()

    def _take(self) -> list[int]:
        tokens: list[int] = []
        while not self._is_done and self._seen < self._sent:
            word = int(self._ring[self._seen])
            if word >> 32 != self._seen + 1:  # a word carries its step: the ring needs no clearing in between
                break
            self._seen += 1
            tokens.append(word & 0xFFFFFFFF)
            self._is_done = tokens[-1] in self._stops or self._seen >= self._most
        return tokens

    def stop(self) -> list[int]:
        """End the stream: wait for what is in flight and give the tokens of it."""
        if self._passes.ring.is_pinned():
            torch.cuda.current_stream().synchronize()
        tokens = self._take()
        self._is_done = True
        return tokens


def _signed(word: int) -> int:
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word
