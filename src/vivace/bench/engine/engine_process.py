"""Our side of the comparison: a real engine process, driven by frames over a socket pair as the server does.

Owns the process and the clock: every frame is stamped when it arrives here. Does not own what is measured.
The engine never outlives us: it ends when its socket does, and is killed by its pid if it should not.
"""

import itertools
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec

from vivace.bench.child import Child
from vivace.engine.wire.frames import (
    Append,
    Close,
    Failed,
    Finished,
    Frame,
    FromEngine,
    Generate,
    Interrupt,
    Open,
    Ready,
    Tokens,
    Waterfall,
    pack,
    server_unpacker,
)
from vivace.engine.wire.job import Job, worker_module
from vivace.errors import ServerGone

READ_BYTES = 1 << 16
SILENCE_S = 300.0  # a pass takes less than a second; this long without a frame is a fault
EXIT_S = 5.0


@dataclass
class Turn:
    """One turn as it was seen from here; times are of `time.perf_counter`."""

    name: str
    sent_s: float
    tokens: list[int] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)  # one a token
    logprobs: list[Any] = field(default_factory=list)
    ended_s: float = 0.0
    reason: str = ""
    waterfall: Waterfall = field(default_factory=Waterfall)

    @property
    def is_over(self) -> bool:
        return self.ended_s > 0.0

    @property
    def first_token_ms(self) -> float:
        """Return the time from the frame sent to the first token received."""
        return (self.arrived_s[0] - self.sent_s) * 1e3

    @property
    def whole_s(self) -> float:
        """Return the time from the frame sent to the last token received."""
        return self.arrived_s[-1] - self.sent_s

    @property
    def token_ms(self) -> float:
        """Return the mean time of each token after the first."""
        return (self.arrived_s[-1] - self.arrived_s[0]) * 1e3 / max(1, len(self.tokens) - 1)


class EngineClient:
    """Asks an engine for turns and notes what comes of them. `send` and `_receive` are its children's."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._numbers = itertools.count(1)
        self._ready: Ready | None = None

    def send(self, *frames: Frame) -> None:
        raise NotImplementedError

    def _receive(self, timeout_s: float, *, is_silence_fine: bool = False) -> None:
        """Wait until something comes, and note it."""
        raise NotImplementedError

    @contextmanager
    def session(self, *, tenant: str = "") -> Iterator[str]:
        """Open a new session. Sessions of the same `tenant` may share prefixes."""
        name = f"s{next(self._numbers)}"
        self.send(Open(name, tenant=tenant))
        yield name
        self.send(Close(name))

    def begin(self, work: Append | Generate) -> Turn:
        """Send one piece of work as a turn of its own."""
        work.turn = f"t{next(self._numbers)}"
        turn = self._turns[work.turn] = Turn(work.turn, time.perf_counter())
        self.send(work)
        return turn

    def run(self, work: Append | Generate) -> Turn:
        """Send one piece of work and wait for its end."""
        return self.finish(self.begin(work))

    def finish(self, turn: Turn) -> Turn:
        while not turn.is_over:
            self._receive(SILENCE_S)
        return turn

    def wait_for_tokens(self, turn: Turn, count: int) -> Turn:
        """Wait until `count` tokens are here, or the turn is over."""
        while len(turn.tokens) < count and not turn.is_over:
            self._receive(SILENCE_S)
        return turn

    def watch(self, seconds: float) -> None:
        """Read frames for this long."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._receive(left, is_silence_fine=True)

    def interrupt(self, turn: Turn) -> float:
        """End a running turn. Return the milliseconds until its end was here."""
        sent = time.perf_counter()
        self.send(Interrupt(turn.name))
        self.finish(turn)
        return (turn.ended_s - sent) * 1e3

    def _handle_frame(self, frame: FromEngine, now: float) -> None:
        match frame:
            case Ready():
                self._ready = frame
            case Tokens():
                turn = self._turns[frame.turn]
                turn.tokens += frame.tokens
                turn.arrived_s += [now] * len(frame.tokens)
                turn.logprobs += frame.logprobs
            case Finished():
                turn = self._turns.pop(frame.turn)
                turn.reason, turn.waterfall, turn.ended_s = frame.reason, frame.waterfall, now
            case Failed():
                raise ServerGone(f"The engine refused to measure: {frame.message}", "See `vivace doctor`.")


class EngineProcess(EngineClient):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self._link, theirs = socket.socketpair()
        self._unpacker = server_unpacker()
        self._child = Child(
            worker_module(job),
            str(theirs.fileno()),
            msgspec.json.encode(job).decode(),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()

    def __enter__(self) -> Self:
        try:
            while self._ready is None:
                self._receive(SILENCE_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def limit_tokens(self) -> int:
        """Return the most tokens that one session can hold."""
        assert self._ready is not None, "enter it first"
        return self._ready.limit_tokens

    @property
    def device(self) -> str:
        """Return what computes."""
        assert self._ready is not None, "enter it first"
        return self._ready.device

    @property
    def threads(self) -> int:
        assert self._ready is not None, "enter it first"
        return self._ready.threads

    def close(self) -> None:
        """Close its socket, which ends it; kill it if it is not gone in time."""
        self._link.close()
        self._child.end(timeout_s=EXIT_S)

    def send(self, *frames: Frame) -> None:
        self._link.sendall(b"".join(map(pack, frames)))

    def _receive(self, timeout_s: float, *, is_silence_fine: bool = False) -> None:
        if not select.select([self._link], [], [], timeout_s)[0]:
            if is_silence_fine:
                return
            raise ServerGone(f"The engine was silent for {timeout_s:.0f} s.", "Try again.")
        try:
            data = self._link.recv(READ_BYTES)
        except ConnectionResetError:
            data = b""
        now = time.perf_counter()
        if not data:
            raise self._child.why_it_ended("The engine process")
        for frame in self._unpacker.feed(data):
            self._handle_frame(frame, now)
