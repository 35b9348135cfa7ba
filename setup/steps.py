"""One step of the set-up: run a command, keep every word of it in the log, show that it moves.

Owns the child process, its signals, and the drawing on stderr (a bar on a terminal, one line elsewhere).
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
COMPILED = re.compile(rb"\s*\[\s*(\d+)(?:/(\d+)\]|%\])")  # ninja's [12/78] or make's [ 15%]


class StepFailed(Exception):
    """A command ended badly, or what it made does not work; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Steps:
    """Runs commands one after the other into one log."""

    def __init__(self, log: Path, environ: Mapping[str, str], lock: int) -> None:
        self.log = log
        self.environ = dict(environ)
        self.lock = (
            lock  # children hold it too: a set-up killed hard does not let a second one in beside its pip
        )
        self.is_terminal = sys.stderr.isatty()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")

    def run(
        self,
        title: str,
        command: Sequence[str],
        fraction: Callable[[bytes], float | None] = lambda _: None,
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

    def _try(
        self,
        title: str,
        command: Sequence[str],
        fraction: Callable[[bytes], float | None],
        extra: Mapping[str, str],
    ) -> bool:
        began_s = time.monotonic()
        if not self.is_terminal:
            print(f"  {title} …", file=sys.stderr, flush=True)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n=== {title}: {shlex.join(command)}\n")
        process = subprocess.Popen(
            command,
            env=self.environ | dict(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(self.lock,),
        )
        try:
            self._follow(process, title, fraction, began_s)
            ended_well = process.wait() == 0
        except BaseException:
            _end_group(process)
            self._clear()
            raise
        self._close(title, began_s, ended_well)
        return ended_well

    def _follow(
        self,
        process: "subprocess.Popen[bytes]",
        title: str,
        fraction: Callable[[bytes], float | None],
        began_s: float,
    ) -> None:
        assert process.stdout is not None
        done, rest = 0.0, b""
        with self.log.open("ab") as log, selectors.DefaultSelector() as selector, process.stdout as output:
            selector.register(output, selectors.EVENT_READ)
            while True:
                if selector.select(TICK_SECONDS):
                    data = os.read(output.fileno(), 1 << 16)
                    if not data:
                        return
                    log.write(data)
                    log.flush()
                    *lines, rest = (rest + data).split(b"\n")
                    done = max([done, *(value for line in lines if (value := fraction(line)) is not None)])
                self._draw(title, done, began_s)

    def _draw(self, title: str, done: float, began_s: float) -> None:
        if not self.is_terminal:
            return
        full = int(min(1.0, done) * BAR_CELLS)
        bar = f" {'█' * full}{'░' * (BAR_CELLS - full)} {min(1.0, done):4.0%}" if done else ""
        line = f"  {title}{bar} {_clock(time.monotonic() - began_s)}"
        sys.stderr.write(CLEAR_LINE + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()

    def _close(self, title: str, began_s: float, ended_well: bool) -> None:
        mark = "✓" if ended_well else "✗"
        if self.is_terminal or not ended_well:
            self._clear()
            print(f"{mark} {title}  {_clock(time.monotonic() - began_s)}", file=sys.stderr, flush=True)

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
