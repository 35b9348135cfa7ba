"""Everything of ours that matches text takes time that grows with the text, whatever the text is."""

import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import REPOSITORY
from tests.fuzz import pumping
from tests.thorough import examples
from vivace.agent.conversation.message.intent import intent_by_words
from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.edits.write.answer import FenceReader, fence_for
from vivace.agent.tools.bounded import printable
from vivace.agent.tools.ignoring import parse_rules
from vivace.agent.tools.matching import find, find_exact
from vivace.errors import EditRejected
from vivace.redaction import RedactedStream, redact
from vivace.tui.transcript.answer import Answer

SIZE = 1_500  # characters
FAST_S = 0.08  # of CPU time: quicker than that is no matter
MOST_TIMES = 3.2  # as long for a text of twice the size
TRIES = 3
USUAL_SEED = 1
LIMIT_S = 30.0
PIECES = (
    *(
        "a",
        " ",
        "\n",
        "\t",
        "`",
        "```",
        "~~~",
        "*",
        "**",
        "_",
        "#",
        "- ",
        "1. ",
        "[",
        "](",
        ")",
        "<",
        ">",
        "|",
    ),
    *("@", '@"', "/", ".", ":", "=", '"', "'", "\\", "\x1b[", "\x1b]0;", "\r", "é", "漢", "{", "}", ",", "-"),
    *("password=", 'token: "', "-----BEGIN PRIVATE KEY-----", "eyJ", "eyJaaaaaaaaaa", "sk-", "AKIA", "://"),
    *(
        "bearer ",
        "SG.",
        "ghp_",
        "please ",
        "in the background",
        "rename ",
        "if x:\n",
        "    return",
        "http://a:",
    ),
)
TEXTS = st.tuples(*[st.lists(st.sampled_from(PIECES), max_size=4).map("".join)] * 3)


def redacted_in_pieces(text: str) -> None:
    stream = RedactedStream()
    for at in range(0, len(text), 40):
        stream.grow(text[at : at + 40])
    stream.end()


def drawn(text: str) -> None:
    answer = Answer()
    answer.grow(text)
    list(answer.rows(80))


def found(text: str) -> None:
    lines = text.split("\n")
    find_exact(lines, text[: len(text) // 3])
    find_exact(lines, text[:1] or "a")
    lines = text[:400].split("\n")  # to find what is alike takes a bounded number of steps, not a linear one
    with suppress(EditRejected):
        find(lines, "\n".join([*lines[: len(lines) // 2], "nothing that is there"]))


def fenced(text: str) -> None:
    reader = FenceReader(fence_for(text))
    for at in range(0, len(text), 20):
        reader.feed(text[at : at + 20])


def ignored(text: str) -> None:
    for rule in parse_rules(text[:4000]):
        rule.matches(text.replace("\n", "")[:4000])


MATCHERS: dict[str, Callable[[str], object]] = {
    "redaction": redact,
    "redaction in pieces": redacted_in_pieces,
    "escapes": printable,
    "mentions": lambda text: mentions_in(text, Path("/nowhere")),
    "intent": intent_by_words,
    "Markdown of the terminal": drawn,
    "edit matching": found,
    "fences": fenced,
    "ignore rules": ignored,
}


@contextmanager
def limited() -> Iterator[None]:
    """End what takes too much CPU time: also an expression that backtracks, which hears signals."""

    def end(*_: object) -> None:
        raise TimeoutError(f"more than {LIMIT_S} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def cpu_s(matcher: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    matcher(text)
    return time.process_time() - began


def assert_linear(matcher: Callable[[str], object], lead: str, pump: str, end: str) -> None:
    """Check that twice the text costs about twice the time, unless both are quick."""

    def text(size: int) -> str:
        return lead + pump * (size // len(pump)) + end

    with limited():
        if cpu_s(matcher, text(2 * SIZE)) < FAST_S:
            return
        for _ in range(TRIES):  # a busy machine makes single runs slower, by as much as several times
            small = statistics.median(cpu_s(matcher, text(SIZE)) for _ in range(3))
            large = statistics.median(cpu_s(matcher, text(2 * SIZE)) for _ in range(3))
            if large <= MOST_TIMES * small:
                return
    assert large <= MOST_TIMES * small, (large, small)


@given(st.sampled_from(sorted(MATCHERS)), TEXTS)
def test_twice_the_text_is_twice_the_time(name: str, text: tuple[str, str, str]) -> None:
    """Inputs that repeat a few pieces are matched in time that is linear in their length."""
    lead, pump, end = text
    assert_linear(MATCHERS[name], lead, pump or "a", end)


@pytest.mark.parametrize(
    ("name", "pump"),
    [
        ("redaction", "-eyJ" + "a" * 12),
        ("edit matching", "a\n"),
        ("edit matching", "ab "),
        ("Markdown of the terminal", "a"),
        ("Markdown of the terminal", "漢"),
        ("fences", "\n"),
        ("intent", "run it, , , ,"),
        ("intent", "1. @apassword="),
    ],
)
def test_what_was_slow_is_linear(name: str, pump: str) -> None:
    """These took quadratic time or worse, at ten times the size as well."""
    with limited():
        assert_linear(MATCHERS[name], "", pump * 10, "!")
        MATCHERS[name](pump * (10 * SIZE // len(pump)))


def test_every_expression_is_linear() -> None:
    """No compiled expression of any module is slow for an input made of its own letters.

    A usual run takes the same inputs each time: what another seed finds is for a thorough one.
    """
    number = random.randrange(10**6) if examples(1) > 1 else USUAL_SEED
    command = [sys.executable, "-m", "tests.fuzz.pumping", str(number), str(examples(15))]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=500, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-2000:]
    assert len([line for line in lines if line.startswith("looks")]) > 100
    assert [line for line in lines if line.startswith("slow")] == [], f"seed {number}"


def test_a_slow_expression_is_found() -> None:
    """The search for slow ones finds one that backtracks."""
    import re

    signal.signal(signal.SIGPROF, pumping._end)
    pattern = re.compile(r"(?:\s*a)*\s*b")
    texts = pumping.inputs(pattern, random.Random(1), 60)
    assert any(pumping.seconds(pattern, pattern.search, text) > pumping.SLOW_S for text in texts)
