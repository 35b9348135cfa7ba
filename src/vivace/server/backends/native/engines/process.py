"""One engine process from its start to its death, and who gets which of its frames.

Owns the process, its last lines on stderr, and how long it may take to load. Does not carry frames
(`transport`) or restart anything (`supervisor`).
"""

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable

import msgspec

from vivace.child_python import module_command
from vivace.engine.wire.frames import (
    Failed,
    Finished,
    FromEngine,
    Loading,
    Reading,
    Ready,
    Stats,
    StatsReply,
    ToEngine,
    Tokens,
)
from vivace.engine.wire.job import PARK_S, Job, worker_module
from vivace.errors import StartError
from vivace.server.backends.native.engines.transport import EngineTransport, SocketTransport

EXIT_S = PARK_S + 5.0  # an engine that was told to end and is still there after this is killed
STDERR_LINES = 20
STUCK_S = 60.0  # an engine that does nothing for so long while it loads is ended
LOADING_S = 1800.0  # and so is one that is never done

log = logging.getLogger(__name__)

TurnFrame = Reading | Tokens | Finished | Failed
Handler = Callable[[TurnFrame | None], None]  # None: the engine has died


class EngineProcess:
    def __init__(
        self, on_death: Callable[[], None] | None = None, on_loading: Callable[[Loading], None] | None = None
    ) -> None:
        """`on_death` is called before the turns learn of the death, and only if the process was ready."""
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Ready] = loop.create_future()
        self._on_death = on_death
        self._on_loading = on_loading
        self._is_up = False  # from when it is ready until it is closed
        self._transport: EngineTransport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: asyncio.Task[None] | None = None
        self._last_words: deque[str] = deque(maxlen=STDERR_LINES)
        self._moved_at = 0.0  # when it was last seen to get on with loading
        self._handlers: dict[str, Handler] = {}
        self._stats: deque[asyncio.Future[StatsReply]] = deque()

    async def begin(self, job: Job) -> Ready:
        """Start the process and wait until its model is loaded; `StartError` with its last words if not."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *module_command(worker_module(job), str(theirs.fileno()), msgspec.json.encode(job).decode()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._stderr = asyncio.create_task(self._read_stderr(self._process))
        self._transport = await SocketTransport.open(ours, self._receive_all, self._on_closed)
        try:
            ready = await self._loaded(job)
        except EOFError:
            raise await self._why() from None
        if self.is_dead:  # its end came together with `Ready`
            raise await self._why()
        self._is_up = True
        return ready

    async def _loaded(self, job: Job) -> Ready:
        """Wait while loading makes progress; a slow disk may take minutes."""
        begun = self._moved_at = time.monotonic()
        while not self.ready.done():
            now = time.monotonic()
            left_s = min(self._moved_at + STUCK_S, begun + LOADING_S) - now
            if left_s <= 0:
                self.kill()
                await self.close()
                raise _stuck(job, now - self._moved_at, now - begun)
            await asyncio.wait([self.ready], timeout=left_s)
        return self.ready.result()

    @property
    def is_dead(self) -> bool:
        return self._transport is not None and self._transport.is_closed

    def _on_closed(self) -> None:
        if self._on_death and self._is_up:
            self._on_death()
        if not self.ready.done():
            self.ready.set_exception(EOFError())
        for waiting in self._stats:
            if not waiting.done():
                waiting.set_exception(EOFError())
        handlers, self._handlers = self._handlers, {}
        for handler in handlers.values():
            handler(None)

    def send(self, frame: ToEngine) -> None:
        """Send a frame. A dead engine gets none: whoever waits for it learns of the death."""
        assert self._transport is not None, "begin comes first"
        self._transport.send(frame)

    def attach(self, turn: str, handler: Handler) -> None:
        """Give `handler` every frame of `turn`, up to and with its end; of a dead engine only that end."""
        if self.is_dead:
            asyncio.get_running_loop().call_soon(handler, None)
        else:
            self._handlers[turn] = handler

    async def stats(self) -> StatsReply:
        if self.is_dead:
            raise EOFError
        reply: asyncio.Future[StatsReply] = asyncio.get_running_loop().create_future()
        self._stats.append(reply)
        self.send(Stats())
        return await reply

    def kill(self) -> None:
        """Kill a process that does not answer. Its death is noticed like any other."""
        if self._process and self._process.returncode is None:
            self._process.kill()

    async def close(self, patience_s: float = EXIT_S) -> None:
        """End the process: close its socket, and kill it if it is still there after `patience_s`."""
        self._is_up = False
        self.ready.cancel()  # nobody waits for it now
        if self._transport:
            self._transport.close()
        if self._process:
            try:
                await asyncio.wait_for(self._process.wait(), patience_s)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._stderr:
            await self._stderr

    def _receive_all(self, frames: list[FromEngine]) -> None:
        """Handle what came in one read. Each turn gets all of its tokens at once."""
        for frame in _merged(frames) if len(frames) > 1 else frames:
            if type(frame) is not Tokens:
                self._receive(frame)
            elif handler := self._handlers.get(frame.turn):
                handler(frame)

    def _receive(self, frame: FromEngine) -> None:
        match frame:
            case Finished(turn=turn) | Failed(turn=turn):
                if handler := self._handlers.pop(turn, None):
                    handler(frame)
                elif isinstance(frame, Failed):
                    log.error("the engine refused a frame: %s", frame.message)
            case Reading(turn=turn):
                if handler := self._handlers.get(turn):
                    handler(frame)
            case StatsReply():
                waiting = self._stats.popleft()
                if not waiting.done():
                    waiting.set_result(frame)
            case Loading():
                self._moved_at = time.monotonic()
                if self._on_loading and frame.total_bytes:
                    self._on_loading(frame)
            case Ready():
                self.ready.set_result(frame)

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            self._last_words.append(text)
            self._moved_at = time.monotonic()
            log.info("engine: %s", text)

    async def _why(self) -> StartError:
        assert self._process is not None
        code = await self._process.wait()
        if self._stderr:
            await self._stderr
        words = "\n".join(self._last_words) or "It said nothing."
        return StartError(
            f"The engine could not start (exit code {code}): {words}",
            "`vivace doctor` checks the machine, `vivace models` the model's file.",
        )


def _merged(frames: list[FromEngine]) -> list[FromEngine]:
    """Return the frames with the tokens of each turn in one, where nothing else comes in between."""
    kept: list[FromEngine] = []
    tokens: dict[str, Tokens] = {}
    for frame in frames:
        if type(frame) is not Tokens:
            tokens.clear()
            kept.append(frame)
        elif before := tokens.get(frame.turn):
            before.tokens += frame.tokens
            before.logprobs += frame.logprobs
        else:
            tokens[frame.turn] = frame
            kept.append(frame)
    return kept


def _stuck(job: Job, silent_s: float, loading_s: float) -> StartError:
    return StartError(
        f"The engine hangs: it has loaded {job.path or job.model} for {loading_s:.0f} s, "
        f"and done nothing for the last {silent_s:.0f}.",
        "See that the disk of that file answers and that there is memory left (`vivace doctor`), "
        "then ask again: that starts another engine.",
    )
