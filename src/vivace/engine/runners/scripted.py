"""A runner that plays a script: for tests and benchmarks where timing or failure must be controlled.

Owns no model: it "predicts" the bytes of a reply, one token a byte, after whatever prompt. It keeps the
same books as a real runner (positions per sequence), so that a KV mistake of the engine's shows.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from vivace.engine.runners.base import Facts, KVFull, Logits, ShouldStop, Span, Stopped
from vivace.models.tokenizer import ByteTokenizer

ASK_S = 0.005


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """`replies`: the first whose key occurs in the prompt's text answers; "" answers everything."""

    replies: dict[str, str] = {}
    step_ms: float = 0.0  # each pass takes this long
    prefill_token_ms: float = 0.0  # and this for every token beyond the first
    die_at_token: int = -1  # kill -9 itself once, when this many tokens of a reply are out
    die_mark: str = ""  # a file that remembers that it has died
    context_tokens: int = 4096


class ScriptedRunner:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._tokenizer = ByteTokenizer()
        self._kv: dict[int, list[int]] = {}  # per sequence: the tokens whose KV would be held
        self.facts = Facts(
            name="scripted",
            context_tokens=script.context_tokens,
            trained_tokens=script.context_tokens,
            sequences=64,
            vocab_size=256 + len(ByteTokenizer.CONTROLS),
            end_tokens=self._tokenizer.end_tokens,
            threads=1,
            can_stop=True,
            kv_format="scripted",
        )

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        count = sum(len(span.tokens) for span in spans)
        if sum(map(len, self._kv.values())) + count > self.facts.context_tokens:
            raise KVFull
        self._pass((self._script.step_ms + self._script.prefill_token_ms * (count - 1)) / 1e3, should_stop)
        rows = []
        for span in spans:
            held = self._kv.setdefault(span.seq, [])
            assert span.start == len(held), f"hole in the KV: {span.start} after {len(held)}"
            for offset, token in enumerate(span.tokens):
                held.append(token)
                if offset >= len(span.tokens) - span.want:
                    rows.append(self._row(held))
        return np.stack(rows) if rows else np.empty((0, self.facts.vocab_size), np.float32)

    def _pass(self, seconds: float, should_stop: ShouldStop | None) -> None:
        """Take that long, or until it should stop."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if should_stop and should_stop():
                raise Stopped
            time.sleep(min(left, ASK_S) if should_stop else left)

    def _row(self, held: list[int]) -> Logits:
        """Logits whose maximum is the next byte of the reply."""
        row = np.zeros(self.facts.vocab_size, np.float32)
        row[self._next(held)] = 10.0
        return row

    def _next(self, held: list[int]) -> int:
        start, end = (self._tokenizer.control(name) for name in ByteTokenizer.CONTROLS)
        begun = len(held) - held[::-1].index(start) if start in held else 0
        said = self._text(held[begun:]).removeprefix(b"assistant\n")
        prompt = self._text(held[: max(begun - 1, 0)]).decode("utf-8", "replace")
        reply = next((r for key, r in self._script.replies.items() if key in prompt), "").encode()
        if len(said) == self._script.die_at_token and self._script.die_mark:
            self._die_once(Path(self._script.die_mark))
        return reply[len(said)] if len(said) < len(reply) else end

    def _text(self, tokens: list[int]) -> bytes:
        return b"".join(map(self._tokenizer.piece, tokens))

    def _die_once(self, mark: Path) -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def known_costs(self) -> dict[int, float]:
        step_ms = max(self._script.step_ms, 0.01)
        return {1: step_ms, 64: step_ms + 63 * self._script.prefill_token_ms}

    def trim(self, seq: int, length: int) -> None:
        del self._kv.setdefault(seq, [])[length:]

    def share(self, source: int, target: int, length: int) -> None:
        self._kv[target] = self._kv.get(source, [])[:length]

    def save(self, seq: int) -> bytes:
        return msgspec.msgpack.encode(self._kv.get(seq, []))

    def load(self, seq: int, state: bytes) -> None:
        held = msgspec.msgpack.decode(state, type=list[int])
        if sum(map(len, self._kv.values())) + len(held) > self.facts.context_tokens:
            raise KVFull
        self._kv[seq] = held

    def piece(self, token: int) -> bytes:
        return self._tokenizer.piece(token)

    def close(self) -> None:
        self._kv.clear()
