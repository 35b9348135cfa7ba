"""A turn's own fault ends that turn only; a fault of the engine itself ends the engine."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import endless
from tests.engine.turns.test_drafts import PAYING
from vivace.engine.kv import parked_cache as parked_cache_module
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.output.compiler import Compiler
from vivace.engine.output.grammar import Constraint, Grammars
from vivace.engine.output.sampler import Sampler
from vivace.engine.runners.base import Logits, ShouldStop, Span
from vivace.engine.speculation.drafter import Drafter
from vivace.engine.wire.frames import (
    Close,
    Failed,
    Finished,
    Generate,
    Grammar,
    Open,
    Park,
    Rewind,
    Sampling,
    Score,
    Stats,
    StatsReply,
    ToEngine,
)

LETTERS = Grammar("regex", "[A-Z]+")
POISON = 13


class Panic(BaseException):
    """What Rust's panics are in Python: no `Exception`."""


class NoPieces(HashRunner):
    """Cannot say what its token 40 stands for."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__(logits=endless)
        self._error = error

    def token_bytes(self, token: int) -> bytes:
        if token == 40:
            raise self._error("no such piece")
        return super().token_bytes(token)


class Poisoned(HashRunner):
    """Fails in a pass over the token 13, and leaves its KV half written."""

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        rows = super().forward(spans, should_stop)
        if any(POISON in span.tokens for span in spans):
            raise RuntimeError("the device could not compute this")
        return rows


def said_alone(*frames: ToEngine, turn: str) -> list[int]:
    desk = Desk(HashRunner(logits=endless))
    for frame in frames:
        desk.run(frame)
    return desk.tokens(turn)


@pytest.mark.parametrize("error", [KeyError, Panic])
def test_a_fault_in_the_grammar_compiler_ends_the_turn_that_asked(
    error: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    """The other turn says all of its text, the fault is logged, and the session can be used again."""
    desk = Desk(NoPieces(error))
    good = Generate("b", "good", [1, 2], max_tokens=8)
    desk.run(Open("a", [5]), Generate("a", "bad", [6], grammar=LETTERS), Open("b"), good)
    assert desk.failed("bad").code == "server_error"
    assert desk.tokens("good") == said_alone(Open("b"), good, turn="good")
    assert "no such piece" in capfd.readouterr().err
    desk.run(Generate("a", "again", [7], max_tokens=3))
    assert desk.tokens("again") == said_alone(
        Open("a", [5]), Generate("a", "again", [7], max_tokens=3), turn="again"
    )
    desk.engine.close()


def test_a_grammar_that_no_thread_compiles_ends_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the turn has begun: the session's log is as it was before."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Compiler, "compile", refuse)
    desk = Desk(HashRunner(logits=endless))
    desk.run(Open("a", [5]), Generate("a", "bad", [6], grammar=LETTERS))
    assert desk.failed("bad").code == "server_error"
    desk.run(Generate("a", "again", [7], max_tokens=3))
    assert desk.tokens("again") == said_alone(
        Open("a", [5]), Generate("a", "again", [7], max_tokens=3), turn="again"
    )


def test_a_pass_that_fails_ends_the_turn_it_fails_for() -> None:
    """All are in one pass when it fails: each then runs alone, from a KV that is made anew."""
    desk = Desk(Poisoned(logits=endless))
    desk.give(Open("a"), Open("b"), Open("c"))
    desk.run(
        Generate("b", "before", [1, 2], max_tokens=9),
        Generate("a", "bad", [1, POISON], max_tokens=9),
        Generate("c", "after", [1, 3], max_tokens=9),
    )
    assert desk.failed("bad").code == "server_error"
    for name, turn, prompt in (("b", "before", [1, 2]), ("c", "after", [1, 3])):
        alone = said_alone(Open(name), Generate(name, turn, prompt, max_tokens=9), turn=turn)
        assert desk.tokens(turn) == alone
    desk.run(Close("a"), Open("a"), Generate("a", "again", [4], max_tokens=2))
    assert len(desk.tokens("again")) == 2


def test_a_score_that_fails_leaves_nothing_in_the_scratch_sequences() -> None:
    """The candidates' KV goes with the turn that failed."""
    runner = Poisoned(logits=endless)
    desk = Desk(runner)
    desk.run(Open("a"), Score("a", "bad", [1], [[2, 3], [POISON, 4], [5, 6]]))
    assert desk.failed("bad").code == "server_error"
    desk.run(Score("a", "good", [], [[2, 3], [4, 5]]))
    desk.give(Close("a"))
    assert desk.finished("good").reason == "scored"
    assert runner.used_cells() == 0


def test_a_runner_that_computes_nothing_any_more_ends_the_engine() -> None:
    """No turn is told that it failed: the server gives it to the next engine."""

    class Broken(HashRunner):
        def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
            if len(self.passes) > 3:
                raise RuntimeError("an illegal memory access was encountered")
            return super().forward(spans, should_stop)

    desk = Desk(Broken(logits=endless))
    desk.give(Open("a"), Open("b"))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        desk.run(Generate("a", "one", [1], max_tokens=50), Generate("b", "two", [2], max_tokens=50))
    assert not [frame for frame in desk.sent if isinstance(frame, Failed | Finished)]


@pytest.mark.parametrize("frame", [Rewind("a", 1), Close("a")], ids=["rewind", "close"])
def test_a_session_that_cannot_be_changed_is_dropped(
    frame: ToEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may not be the server's any more: nothing goes on from it, and other sessions do."""
    runner = HashRunner(logits=endless)
    desk = Desk(runner)
    desk.run(Open("a", [1, 2, 3]), Generate("a", "first", [4], max_tokens=2), Open("b", [9]))
    with monkeypatch.context() as patch:
        _raise_at(patch, HashRunner, "trim", 1)
        desk.give(frame)
    assert desk.failed("").code == "server_error"
    desk.run(Generate("a", "next", [5]), Generate("b", "other", [1], max_tokens=3))
    assert desk.failed("next").code == "invalid_request_error"
    assert desk.tokens("other") == said_alone(
        Open("b", [9]), Generate("b", "other", [1], max_tokens=3), turn="other"
    )


# ---- whatever fails on the disk costs a prefill -----------------------------------------------------


@pytest.mark.parametrize("place", [(ParkedCache, "park"), (HashRunner, "save")], ids=["park", "save"])
def test_a_park_that_fails_is_nobodys_error(
    place: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's next turn says what it would have said."""
    _raise_at(monkeypatch, *place, 1)
    desk = Desk(HashRunner(logits=endless), ParkedCache(tmp_path, kv_format="hash", limit_bytes=1 << 20))
    desk.run(Open("a", list(range(60))), Generate("a", "t", [1], max_tokens=2))
    desk.give(Park("a"))
    assert not [frame for frame in desk.sent if isinstance(frame, Failed)]
    desk.run(Generate("a", "u", [2], max_tokens=4))
    work = (Open("a", list(range(60))), Generate("a", "t", [1], max_tokens=2))
    assert desk.tokens("u") == said_alone(*work, Generate("a", "u", [2], max_tokens=4), turn="u")
    desk.engine.close()


@pytest.mark.parametrize(
    "place",
    [(ParkedCache, "find"), (ParkedCache, "read"), (HashRunner, "load")],
    ids=["find", "read", "load"],
)
def test_what_cannot_be_restored_is_prefilled(
    place: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn says what it would have said."""
    desk = Desk(HashRunner(logits=endless), ParkedCache(tmp_path, kv_format="hash", limit_bytes=1 << 20))
    desk.run(Open("a", list(range(60))), Generate("a", "t", [1], max_tokens=2))
    desk.give(Park("a"))
    _raise_at(monkeypatch, *place, 1)
    desk.run(Generate("a", "u", [2], max_tokens=4))
    work = (Open("a", list(range(60))), Generate("a", "t", [1], max_tokens=2))
    assert desk.tokens("u") == said_alone(*work, Generate("a", "u", [2], max_tokens=4), turn="u")
    assert desk.finished("u").waterfall.restored_tokens == 0
    desk.engine.close()


def test_a_file_that_the_writer_cannot_write_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the writer's thread meets: the engine can wait for it, and close."""

    def fail(*_: object) -> bytes:
        raise MemoryError

    parked_cache = ParkedCache(tmp_path, kv_format="hash", limit_bytes=1 << 20)
    monkeypatch.setattr(parked_cache_module, "write_file", fail)
    desk = Desk(HashRunner(logits=endless), parked_cache)
    desk.run(Open("a", list(range(60))), Generate("a", "t", [1], max_tokens=2))
    desk.give(Park("a"))
    parked_cache.flush()
    assert parked_cache.disk_bytes == 0
    desk.engine.close()


def test_a_parked_cache_that_cannot_be_read_at_start_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine starts without its kept beginnings."""
    _raise_at(monkeypatch, ParkedCache, "prefixes", 1)
    desk = Desk(HashRunner(logits=endless), ParkedCache(tmp_path, kv_format="hash", limit_bytes=1 << 20))
    desk.run(Open("a"), Generate("a", "t", [1], max_tokens=2))
    assert len(desk.tokens("t")) == 2
    desk.engine.close()


# ---- a fault anywhere, at any time -------------------------------------------------------------------

PLACES: list[tuple[type, str]] = [
    (Drafter, "propose"),
    (Drafter, "observe"),
    (Sampler, "sample"),
    (Sampler, "count_token"),
    (Sampler, "logprobs"),
    (HashRunner, "forward"),
    (HashRunner, "share"),
    (HashRunner, "token_bytes"),
]
GRAMMAR_PLACES: list[tuple[type, str]] = [
    (Grammars, "compile"),
    (Constraint, "mask"),
    (Constraint, "accept"),
    (Constraint, "forced"),
    (Constraint, "keep"),
]


def _raise_at(patch: pytest.MonkeyPatch, owner: type, name: str, number: int) -> None:
    """Let the call of that number raise, after it has done what it does."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def faulty(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        result = real(*args, **kwargs)
        if calls == number:
            raise random.choice([RuntimeError, Panic])(f"call {number} of {name}")
        return result

    patch.setattr(owner, name, faulty)


def work_of(seed: int, grammar: Grammar | None) -> list[ToEngine]:
    """Turns of several sessions, some of which begin alike; with drafts, penalties and log-probabilities."""
    rng = random.Random(seed)
    frames: list[ToEngine] = []
    for number in range(5):
        name = f"s{number}"
        log = [*range(40), *(rng.randrange(12) for _ in range(rng.randrange(5)))]
        frames.append(Open(name, log))
        sampling = Sampling(presence_penalty=0.5, top_logprobs=2, seed=number) if number % 2 else Sampling()
        frames.append(
            Generate(
                name,
                f"t{number}",
                [number],
                max_tokens=rng.randrange(6, 14),
                sampling=sampling,
                stop=["never said"],
                grammar=grammar if number == 2 else None,
                prediction=log[:20],
                tier=rng.choice(["realtime", "background"]),
            )
        )
    return frames


@cache
def truth(seed: int, grammar: Grammar | None) -> dict[str, list[int]]:
    desk = Desk(HashRunner(logits=endless), costs=PAYING)
    desk.run(*work_of(seed, grammar))
    desk.engine.close()
    return {f"t{number}": desk.tokens(f"t{number}") for number in range(5)}


@pytest.mark.parametrize("seed", [1, random.randrange(2**32)], ids=["one", "any"])
@pytest.mark.parametrize(
    ("place", "grammar"),
    [*((each, None) for each in PLACES), *((each, LETTERS) for each in GRAMMAR_PLACES)],
    ids=lambda each: each[1] if isinstance(each, tuple) else "",
)
def test_a_fault_anywhere_changes_no_other_text(
    place: tuple[type, str], grammar: Grammar | None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one turn fails, with what it has said so far; every other says what it would have said."""
    print(f"seed {seed}")
    expected = truth(seed, grammar)
    runner = HashRunner(logits=endless)
    desk = Desk(runner, costs=PAYING)
    _raise_at(monkeypatch, *place, random.Random(seed).randrange(1, 5) if not grammar else 1)
    desk.run(*work_of(seed, grammar))
    failed = [frame.turn for frame in desk.sent if isinstance(frame, Failed)]
    assert len(failed) <= 1
    for turn, tokens in expected.items():
        if turn in failed:
            assert desk.tokens(turn) == tokens[: len(desk.tokens(turn))]
        else:
            assert desk.tokens(turn) == tokens
            desk.finished(turn)
    desk.run(*(Close(f"s{number}") for number in range(5)), Stats())
    stats = desk.sent[-1]
    assert isinstance(stats, StatsReply)
    assert (stats.turns, stats.sessions, runner.used_cells()) == (0, 0, 0)
    desk.engine.close()
