"""`kill -9` in tmux in the middle of an answer: of the terminal, the server, the engine. Nothing is lost."""

import shutil

import pytest

from tests.e2e.terminal import Home, kill_hard, wait_until
from tests.e2e.tmux import Tmux

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

LAST = 29
LONG = "".join(f"{number} bottles {number * 7919 % 1009}\n" for number in range(LAST + 1))
ENDLESS = LONG * 40  # minutes, so that it is being written whatever a busy machine does meanwhile


@pytest.fixture
def asked(home: Home, tmux: Tmux, request: pytest.FixtureRequest) -> Tmux:
    """A terminal in which an answer is being written."""
    home.script({"what ": "Hello there.", "long": getattr(request, "param", LONG)}, step_ms=12)
    tmux.open(rows=60)
    tmux.say("why so long?")
    tmux.sees("3 bottles")
    return tmux


def is_whole(text: str) -> bool:
    """Return whether the last answer on the screen has every line, once and in order."""
    shown = text[text.rindex("› why so long?") :]
    return [line.strip() for line in shown.splitlines() if "bottles" in line] == LONG.splitlines()


def test_of_the_terminal(asked: Tmux) -> None:
    """What was shown is there when the conversation is continued, and the next turn works."""
    kill_hard(asked.pid)
    asked.close()
    asked.open("--continue", rows=60)
    asked.sees("› why so long?", "0 bottles 0", "3 bottles", "ready")
    asked.say("what now?")
    asked.sees("› what now?", "Hello there.")


def test_of_the_engine(asked: Tmux, home: Home) -> None:
    """The answer goes on where it was: the user sees at most a pause, and the next turn works."""
    first = home.status()["engine"]["pid"]
    kill_hard(first)
    asked.sees(f"{LAST} bottles", "first token", "ready")
    assert is_whole(asked.text), asked.text
    wait_until(lambda: home.status()["engine"]["pid"] not in (0, first), "another engine")
    asked.say("what now?")
    asked.sees("› what now?", "Hello there.")


@pytest.mark.parametrize("asked", [ENDLESS], indirect=True, ids=["endless"])
def test_of_the_engine_twice(asked: Tmux, home: Home) -> None:
    """An engine that dies twice under one turn fails the turn in words; what was said stays."""
    first = home.status()["engine"]["pid"]
    kill_hard(first)
    asked.sees("5 bottles")
    wait_until(lambda: home.status()["engine"]["pid"] not in (0, None, first), "another engine")
    kill_hard(home.status()["engine"]["pid"])
    asked.sees("bottles", "The engine died twice under this turn.", "ready")
    asked.say("what now?")
    asked.sees("› what now?", "Hello there.")


def test_of_the_server(asked: Tmux, home: Home) -> None:
    """The screen says that the server went away; another one answers the same question to its end."""
    kill_hard(home.status()["pid"])
    asked.sees("The server went away. Starting another one, and asking again.")
    asked.sees(f"{LAST} bottles", "first token", "ready")
    asked.say("what now?")
    asked.sees("› what now?", "Hello there.")


def test_of_all_of_it(asked: Tmux, home: Home) -> None:
    """Terminal, server and engine die at once, as when the machine does: the conversation is continued."""
    status = home.status()
    for pid in (asked.pid, status["pid"], status["engine"]["pid"]):
        kill_hard(pid)
    asked.close()
    asked.open("--continue", rows=60)
    asked.sees("› why so long?", "3 bottles", "ready")
    asked.say("what now?")
    asked.sees("› what now?", "Hello there.")


def test_a_draft_and_a_queue_survive_the_terminal(asked: Tmux) -> None:
    """A message that waited in the queue waits again after the terminal was killed."""
    asked.type("what is queued?")
    asked.press("Tab")
    asked.sees("⏎ what is queued?", "1 queued")
    kill_hard(asked.pid)
    asked.close()
    asked.open("--continue", rows=60)
    asked.sees("› what is queued?", "Hello there.")
