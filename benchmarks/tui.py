"""How responsive the terminal face is while text floods in: key to screen, share of a core, time to a prompt.

    .venv/bin/python benchmarks/tui.py [--turns 5000] [--step-ms 0.1] [--keys 60]

Runs the real program on a pseudo-terminal, with a real server whose scripted model says a token (a byte) each
`step_ms`. Letters that occur nowhere else are typed, and a letter counts as seen when the terminal is told to
draw it. Needs a quiet machine for figures that mean something; Linux only (/proc).
"""

import argparse
import fcntl
import json
import os
import pty
import random
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.events.base import SCHEMA
from vivace.agent.events.talk import Compacted, ConversationStarted
from vivace.agent.events.turn import (
    AnswerGrew,
    AttemptStarted,
    IntentDecided,
    TurnEnded,
    TurnStarted,
)
from vivace.client.warm import ensure_server, stop_server
from vivace.config import Settings

ROWS, COLUMNS = 40, 120
FIRST_LETTER = 0x0410  # Cyrillic: nothing else on the screen has such letters
ANSWERS = 40  # of 2,048 tokens each, queued one behind the other
HANG_S = 60.0


class Terminal:
    """The program on a pseudo-terminal."""

    def __init__(self, environment: dict[str, str], folder: Path, *arguments: str) -> None:
        self.began_s = time.perf_counter()
        self.shown = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(sys.executable, [sys.executable, "-m", "vivace", *arguments], environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, wait_s: float) -> bytes:
        if not select.select([self.fd], [], [], wait_s)[0]:
            return b""
        data = os.read(self.fd, 1 << 16)
        self.shown = (self.shown + data)[-(1 << 16) :]
        return data

    def until(self, word: str) -> float:
        """Read until this is drawn; return how long that took in milliseconds."""
        began_s = time.perf_counter()
        wanted, seen = word.encode(), b""
        while wanted not in seen:
            assert time.perf_counter() - began_s < HANG_S, f"never saw {word!r}"
            seen = seen[-len(wanted) :] + self.read(0.05)
        return (time.perf_counter() - began_s) * 1e3

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def rest(self, seconds: float) -> int:
        """Read what comes in this time; return the bytes."""
        end_s, count = time.perf_counter() + seconds, 0
        while (left_s := end_s - time.perf_counter()) > 0:
            count += len(self.read(left_s))
        return count

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def write_conversation(settings: Settings, folder: Path, turns: int) -> str:
    """Write the transcript of a long conversation; return its id."""
    began = ConversationStarted(
        schema=SCHEMA, id="benchmark", folder=str(folder), model=settings.model, at_s=time.time()
    )
    transcript = Transcript(settings.state_dir / "conversations" / "benchmark.jsonl")
    transcript.append(began)
    for number in range(1, turns + 1):
        for record in (
            TurnStarted(turn=number, text=f"What about {number}?"),
            IntentDecided(kind="question", by="words"),
            AttemptStarted(),
            AnswerGrew(text=f"It is fine.\n\n```python\ndef f{number}():\n    return {number}\n```\n"),
            TurnEnded(turn=number, status="completed"),
        ):
            transcript.append(record)
    transcript.append(
        Compacted(turn=turns, summary="Numbers.", before_tokens=0)
    )  # or all of it would be sent
    transcript.close()
    return began.id


def measure(terminal: Terminal, keys: int) -> dict[str, float]:
    """Flood the screen, type letters meanwhile, and return what was measured."""
    for _ in range(ANSWERS):
        terminal.type("why?\t")
        terminal.rest(0.02)
    deadline_s = time.perf_counter() + HANG_S
    while b"writing" not in terminal.shown:
        assert time.perf_counter() < deadline_s, "the model never wrote"
        terminal.rest(0.1)
    rng = random.Random(1)
    before_s, cpu_s = time.perf_counter(), terminal.cpu_s
    delays_ms = []
    for index in range(keys):
        letter = chr(FIRST_LETTER + index)
        terminal.type(letter)
        delays_ms.append(terminal.until(letter))
        terminal.rest(rng.uniform(0.02, 0.08))
    share = (terminal.cpu_s - cpu_s) / (time.perf_counter() - before_s)
    delays_ms.sort()
    return {
        "key_to_screen_ms_p50": round(statistics.median(delays_ms), 1),
        "key_to_screen_ms_p95": round(delays_ms[int(0.95 * (len(delays_ms) - 1))], 1),
        "cpu_share": round(share, 2),
    }


def run(turns: int, step_ms: float, keys: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.json"
        reply = "".join(f"{number} {number * number}\n" for number in range(2000))
        fields = {"step_ms": step_ms, "context_tokens": 10_000_000, "is_engineless": True}
        script.write_text(json.dumps({"replies": {"": reply}} | fields))
        settings = Settings(
            cache_dir=folder / "cache", state_dir=folder / "state", port=0, allow_scripted=True
        )
        settings = settings.having(model=f"scripted:{script}")
        environment = os.environ | {
            "VIVACE_CACHE_DIR": str(settings.cache_dir),
            "VIVACE_STATE_DIR": str(settings.state_dir),
            "VIVACE_PORT": "0",
            "VIVACE_ALLOW_SCRIPTED": "1",
            "VIVACE_MODEL": settings.model,
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }
        arguments = ["--resume", write_conversation(settings, folder, turns)] if turns else []
        ensure_server(settings)
        terminal = Terminal(environment, folder, *arguments)
        try:
            terminal.until("›")
            prompt_ms = (time.perf_counter() - terminal.began_s) * 1e3
            terminal.type("ж")
            terminal.until("ж")
            typed_ms = (time.perf_counter() - terminal.began_s) * 1e3
            terminal.type("\x7f")
            terminal.until(f"f{turns}" if turns else "ready")
            shown_ms = (time.perf_counter() - terminal.began_s) * 1e3
            found = measure(terminal, keys)
        finally:
            terminal.close()
            stop_server(settings, is_hurried=True)
        started = {"prompt_ms": prompt_ms, "first_key_ms": typed_ms, "conversation_ms": shown_ms}
        return {"turns": turns} | {name: round(value) for name, value in started.items()} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=5000, help="of a conversation that is resumed")
    parser.add_argument("--step-ms", type=float, default=0.1, help="between two tokens")
    parser.add_argument("--keys", type=int, default=60)
    given = parser.parse_args()
    for turns in dict.fromkeys((0, given.turns)):
        print(json.dumps(run(turns, given.step_ms, given.keys)), flush=True)


if __name__ == "__main__":
    main()
