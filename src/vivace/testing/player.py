"""A script played on the frames alone, without an engine: for benches of what stands around an engine.

Every running turn says one byte of its reply each `step_ms`, on a raster, each byte in a frame of its own as
an engine would send it. So a thousand tokens a second for many turns cost this process next to nothing. Owns
the clock. Does not own sessions, KV or prompts: a reply is chosen by the tokens of the `Generate` alone.
"""

import os
import select
import socket
import time

import msgspec

from vivace.engine.faults import failure
from vivace.engine.wire.frames import (
    Append,
    Failed,
    Finished,
    Frame,
    Generate,
    Interrupt,
    Ready,
    Score,
    Stats,
    StatsReply,
    ToEngine,
    Tokens,
    Waterfall,
    engine_unpacker,
    pack,
)
from vivace.models.tokenizer import ByteTokenizer, script_of
from vivace.testing.scripted import Script, Stamps

READ_BYTES = 1 << 20


class Playing:
    """A turn that is being answered."""

    def __init__(self, work: Generate, row: int, reply: bytes) -> None:
        self.id = work.turn
        self.row = row
        self.tokens = [*reply, *sorted(ByteTokenizer().end_tokens)][: work.max_tokens]
        self.said = 0
        self.begun = time.perf_counter()


class Player:
    def __init__(self, link: socket.socket, model: str) -> None:
        self._link = link
        self._model = model
        self._script = script = msgspec.convert(script_of(model), Script)
        assert not script.vocabulary, "a player speaks bytes"
        self._unpacker = engine_unpacker()
        self._pieces = ByteTokenizer()
        self._turns: dict[str, Playing] = {}
        self._due = 0.0  # when every turn says its next token
        self._tokens_generated = 0
        self._stamps = Stamps.of(script)

    def play(self) -> None:
        """Until the other side closes."""
        self._send(self._ready())
        while True:
            left_s = max(0.0, self._due - time.perf_counter()) if self._turns else None
            if select.select([self._link], [], [], left_s)[0]:
                if not (data := self._link.recv(READ_BYTES)):
                    return
                for frame in self._unpacker.feed(data):
                    self._handle(frame)
            elif self._turns:
                self._due += self._script.step_ms / 1e3
                for turn in list(self._turns.values()):
                    self._say(turn)

    def _handle(self, frame: ToEngine) -> None:
        match frame:
            case Generate():
                self._begin(frame)
            case Append(turn=turn):
                self._send(Finished(turn, "appended", Waterfall()))
            case Score(turn=turn):
                self._send(Failed(turn, "usage", "A player scores nothing."))
            case Interrupt(turn=turn):
                if playing := self._turns.get(turn):
                    self._end(playing, "interrupted")
            case Stats():
                self._send(self._stats())
            case _:
                pass  # sessions: there are none

    def _begin(self, work: Generate) -> None:
        try:
            self._play(work)
        except Exception as error:  # noqa: BLE001 - the boundary of a turn
            self._send(failure(work.turn, error))

    def _play(self, work: Generate) -> None:
        prompt = b"".join(map(self._pieces.token_bytes, work.tokens)).decode("utf-8", "replace")
        row, reply = self._script.reply_to(prompt)
        if not self._turns:
            self._due = time.perf_counter() + self._script.step_ms / 1e3
        self._turns[work.turn] = Playing(work, row, reply.encode())

    def _say(self, turn: Playing) -> None:
        token = turn.tokens[turn.said]
        if self._stamps:
            self._stamps.put(turn.row, turn.said)
        self._send(Tokens(turn.id, [token]))
        turn.said += 1
        self._tokens_generated += 1
        if turn.said == len(turn.tokens):
            self._end(turn, "stop" if token in self._pieces.end_tokens else "length")

    def _end(self, turn: Playing, reason: str) -> None:
        del self._turns[turn.id]
        spent_ms = (time.perf_counter() - turn.begun) * 1e3
        self._send(Finished(turn.id, reason, Waterfall(decode_ms=spent_ms, output_tokens=turn.said)))

    def _ready(self) -> Ready:
        tokens = self._script.context_tokens
        return Ready(self._model, tokens, tokens, tokens, 1.0, threads=1, load_ms=0.0, pid=os.getpid())

    def _stats(self) -> StatsReply:
        return StatsReply(0, len(self._turns), 0, 0, 0, 0, self._tokens_generated, time.monotonic())

    def _send(self, frame: Frame) -> None:
        self._link.sendall(pack(frame))
