"""The steps of the set-up: run commands, keep every word of them in logs, show that they move.

Owns the child processes, their signals, and the drawing on stderr: one line on a terminal, with a bar for the
present step and a figure for each that runs beside it; a line for each tenth elsewhere.
Does not know what the steps are for: `install` and `native` do. Standard library only.
"""

import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TICK_SECONDS = 0.25
BAR_CELLS = 24
TAIL_LINES = 12
ATTEMPTS = 3
CUT_SHORT = "do not match the hashes|incomplete ?read|connection (broken|reset|aborted)|read timed out"
CLEAR_LINE = "\r\x1b[K"
Fraction = Callable[[bytes], float | None]
COMPILED = re.compile(rb"\s*\[\s*(\d+)(?:/(\d+)\]|%\])")  # ninja's [12/78] or make's [ 15%]


class StepFailed(Exception):
    """A command ended badly, or what it made does not work; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Command:
    """A running command: its output goes to a log, and each line may tell what fraction is done."""

    def __init__(self, title: str, process: "subprocess.Popen[bytes]", fraction: Fraction, log: Path) -> None:
        self.title, self.process, self.fraction = title, process, fraction
        self.word = ""  # how it is called while it runs beside another one
        self.log = log.open("ab")
        self.began_s = time.monotonic()
        self.done = 0.0
        self.has_ended = False
        self._rest = b""

    @property
    def ended_well(self) -> bool:
        return self.has_ended and self.process.returncode == 0

    def read(self) -> None:
        """Take what it has said; at the end of its output wait for its end."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            self.process.wait()
            self.close()
            return
        self.log.write(data)
        self.log.flush()
        *lines, self._rest = (self._rest + data).split(b"\n")
        told = [value for line in lines if (value := self.fraction(line)) is not None]
        self.done = max([self.done, *told])

    def close(self) -> None:
        assert self.process.stdout is not None
        self.has_ended = True
        self.process.stdout.close()
        self.log.close()


class Steps:
    """Runs commands one after the other into one log, and others beside them into logs of their own."""

    def __init__(self, log: Path, environ: Mapping[str, str], lock: int) -> None:
        self.log = log
        self.environ = dict(environ)
        self.lock = (
            lock  # children hold it too: a set-up killed hard does not let a second one in beside its pip
        )
        self.is_terminal = sys.stderr.isatty()
        self._beside: list[Command] = []
        self._done_beside: set[str] = set()  # the words of those that ended well
        self._selector = selectors.DefaultSelector()
        self._tenths = 0
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")

    def run(
        self,
        title: str,
        command: Sequence[str],
        fraction: Fraction = lambda _: None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Run `command`; each line of its output may tell what `fraction` of the step is done.

        Once more, and again, if a download was cut short: older pips do not go on with it.
        """
        for left in reversed(range(ATTEMPTS)):
            if self._try(title, command, fraction, extra or {}):
                return
            if not left or not re.search(CUT_SHORT, self._last_words(), re.IGNORECASE):
                raise StepFailed(f"{title}: failed", self._hint())
            print("  A download was cut short. Once more …", file=sys.stderr, flush=True)

    def start_beside(
        self, title: str, word: str, command: Sequence[str], fraction: Fraction = lambda _: None
    ) -> None:
        """Start `command` beside the steps that follow, where it is shown as `word`.

        It may fail: what it should have done is then done, or missed, later.
        """
        if not self.is_terminal:
            print(f"  {title} beside it …", file=sys.stderr, flush=True)
        log = self.log.with_name(f"{self.log.name}.{word}")
        log.write_bytes(b"")
        started = self._start(title, command, fraction, {}, log)
        started.word = word
        self._beside.append(started)

    def finish(self, word: str) -> bool:
        """Wait for what was started beside as `word`, if it still runs; show it like a step.

        Return whether it was started and ended well.
        """
        for beside in [each for each in self._beside if each.word == word]:
            self._tell(beside.title)
            self._follow(beside)
        return word in self._done_beside

    def end_all(self) -> None:
        """End what still runs beside."""
        for beside in self._beside:
            _end_group(beside.process)
        self._beside.clear()

    def _try(self, title: str, command: Sequence[str], fraction: Fraction, extra: Mapping[str, str]) -> bool:
        self._tell(title)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n=== {title}: {shlex.join(command)}\n")
        current = self._start(title, command, fraction, extra, self.log)
        try:
            self._follow(current)
        except BaseException:
            _end_group(current.process)
            self._clear()
            raise
        self._close(current)
        return current.ended_well

    def _start(
        self,
        title: str,
        command: Sequence[str],
        fraction: Fraction,
        extra: Mapping[str, str],
        log: Path,
    ) -> Command:
        process = subprocess.Popen(
            command,
            env=self.environ | dict(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(self.lock,),
        )
        assert process.stdout is not None
        started = Command(title, process, fraction, log)
        self._selector.register(process.stdout, selectors.EVENT_READ, started)
        return started

    def _follow(self, current: Command) -> None:
        """Read and draw until `current` has ended."""
        self._tenths = 0
        while not current.has_ended:
            for key, _ in self._selector.select(TICK_SECONDS):
                command: Command = key.data
                command.read()
                if command.has_ended:
                    self._selector.unregister(key.fileobj)
                    if command in self._beside:
                        self._beside.remove(command)
                        self._done_beside |= {command.word} if command.ended_well else set()
                        self._close(command)
            self._draw(current)

    def _tell(self, title: str) -> None:
        if not self.is_terminal:
            print(f"  {title} …", file=sys.stderr, flush=True)

    def _draw(self, current: Command) -> None:
        done = min(1.0, current.done)
        if not self.is_terminal:
            if int(10 * done) > self._tenths and not current.has_ended:  # every line stays: a few are enough
                self._tenths = int(10 * done)
                print(f"  {current.title}: {10 * self._tenths}%", file=sys.stderr, flush=True)
            return
        others = [other for other in self._beside if other is not current]
        beside = "".join(f" · {other.word}{f' {other.done:.0%}' if other.done else ''}" for other in others)
        columns = shutil.get_terminal_size().columns - 1
        clock = f" {_clock(time.monotonic() - current.began_s)}"
        taken = len(f"  {current.title}  100%{clock}{beside}")
        cells = max(4, min(BAR_CELLS, columns - taken))
        full = int(done * cells)
        bar = f" {'█' * full}{'░' * (cells - full)} {done:4.0%}" if current.done else ""
        sys.stderr.write(CLEAR_LINE + f"  {current.title}{bar}{clock}{beside}"[:columns])
        sys.stderr.flush()

    def _close(self, command: Command) -> None:
        mark = "✓" if command.ended_well else "✗"
        is_needed = not command.word  # what ran beside is done again if it must be
        if self.is_terminal or (not command.ended_well and is_needed):
            self._clear()
            if command.ended_well or is_needed:
                took = _clock(time.monotonic() - command.began_s)
                print(f"{mark} {command.title}  {took}", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self.is_terminal:
            sys.stderr.write(CLEAR_LINE)

    def _last_words(self) -> str:
        """What the last command said at its end."""
        said = self.log.read_text("utf-8", "replace").rpartition("\n=== ")[2]
        return "\n".join(said.splitlines()[1:][-60:])

    def _hint(self) -> str:
        """What to do, guessed from the last words."""
        words = self._last_words()
        for pattern, hint in HINTS:
            if re.search(pattern, words, re.IGNORECASE):
                return hint
        return "Run the same command again. If it fails the same way, please report it with the log."


def tail(log: Path) -> list[str]:
    """The last lines of the log, for a person to read."""
    lines = log.read_text("utf-8", "replace").splitlines()
    return [line[:200] for line in lines if line.strip()][-TAIL_LINES:]


HINTS = (
    ("no space left|disk quota", "The disk is full. Free about 2 GB, then run the same command again."),
    (
        "do not match the hashes",
        f"A download was cut short, {ATTEMPTS} times, or something on the way changes files: a proxy, or a "
        "mirror of the package index. Run the same command again: it goes on where it stopped.",
    ),
    (
        "name resolution|failed to establish|no matching distribution|timed out|connection|ssl",
        "The package index could not be reached. The first start needs it; pip's own settings (pip.conf, "
        "PIP_INDEX_URL, proxies) apply. Then run the same command again: it goes on where it stopped.",
    ),
    (
        "killed signal terminated|cannot allocate memory|out of memory",
        "The compiler ran out of memory. Close other programs, then run the same command again with "
        "CMAKE_BUILD_PARALLEL_LEVEL=1.",
    ),
    (
        "fatal error:|error: ",
        "A compiler that is too old or incomplete is the usual cause: GCC 11 or Clang 14 do.",
    ),
)


def compiled_fraction(line: bytes) -> float | None:
    """How far ninja or make is, from a line of theirs."""
    match = COMPILED.match(line)
    if not match:
        return None
    return int(match[1]) / int(match[2] or 100)


def percent_fraction(line: bytes) -> float | None:
    """How far a command is that says `37%` in a line of its own."""
    number = line.strip().removesuffix(b"%")
    return int(number) / 100 if number.isdigit() else None


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End pip with all that it started, and wait: half-written objects are removed by the compiler."""
    for name in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, name)
            process.wait(5)
        except (ProcessLookupError, PermissionError):
            break
        except subprocess.TimeoutExpired:
            continue
        break


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
