"""An engine without work prepares what the first grammar would wait for, a little at a time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from vivace.engine.loop import engine as engine_module
from vivace.engine.output import grammar as grammar_module
from vivace.engine.output.grammar import Grammars
from vivace.engine.wire.frames import Generate, Grammar, Open

LETTERS = Grammar("regex", "[A-Z]+")


class Counting(HashRunner):
    """Counts how many pieces it was asked for."""

    def __init__(self) -> None:
        super().__init__(2048, 64)
        self.asked = 0

    def token_bytes(self, token: int) -> bytes:
        self.asked += 1
        return super().token_bytes(token)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(grammar_module, "PIECES_AT_ONCE", 10)
    return Counting()


def rested(desk: Desk) -> int:
    """Rest until there is nothing left to prepare; in how many steps."""
    steps = 0
    while desk.engine.idle_work() is not None:
        steps += 1
    return steps


def test_the_first_grammar_finds_the_vocabulary_made(
    runner: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rest no token's piece is asked for again, and no rest does anything more."""
    monkeypatch.setattr(engine_module, "IDLE_AFTER_S", 0.0)
    desk = Desk(runner)
    assert rested(desk) > runner.info.vocab_size // 10
    assert runner.asked == runner.info.vocab_size
    grammars = desk.engine._compiler._grammars
    assert grammars.compile(LETTERS).mask().any()
    assert rested(desk) == 0
    assert runner.asked == runner.info.vocab_size
    desk.engine.close()


def test_nothing_is_prepared_until_it_has_rested(runner: Counting) -> None:
    """Right after loading and right after a turn, somebody is often about to ask."""
    desk = Desk(runner)
    for _ in range(2):
        wait_s = desk.engine.idle_work()
        assert wait_s is not None
        assert 0 < wait_s <= engine_module.IDLE_AFTER_S
        assert runner.asked == 0
        desk.engine._worked_at -= 100.0
        desk.run(Open("s"), Generate("s", "t", [1], max_tokens=1, use_drafts=False))
        runner.asked = 0


def test_a_turn_in_the_middle_of_it_runs_at_once(runner: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its grammar, which makes the rest of the vocabulary and nothing twice."""
    monkeypatch.setattr(engine_module, "IDLE_AFTER_S", 0.0)
    desk = Desk(runner)
    for _ in range(4):
        desk.engine.idle_work()
    begun = runner.asked
    assert 0 < begun < runner.info.vocab_size
    desk.engine._compiler._grammars.compile(LETTERS)
    assert runner.asked == runner.info.vocab_size
    assert rested(desk) == 0
    desk.engine.close()


def test_rest_does_not_wait_for_a_compile(runner: Counting) -> None:
    """While another thread compiles, the loop is told to come back."""
    grammars = Grammars(runner)
    with grammars._lock:
        assert grammars.prepare()
    assert runner.asked == 0


def test_what_cannot_be_prepared_is_left_to_who_asks(
    runner: Counting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once; the engine lives, and a grammar that is asked for is tried anew."""
    grammars = Grammars(runner)
    with monkeypatch.context() as patch:
        patch.setattr(grammar_module, "Vocabulary", None)
        while grammars.prepare():
            pass
        assert not grammars.prepare()
    assert capsys.readouterr().err.count("could not be prepared") == 1
    assert grammars.compile(LETTERS).mask().any()
    grammars.close()


def test_without_llguidance_there_is_nothing_to_prepare(
    runner: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra of some installations."""
    monkeypatch.setattr(grammar_module.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]
    assert not Grammars(runner).prepare()


def test_rests_and_compiles_at_once_make_one_vocabulary(runner: Counting) -> None:
    """Whoever does how much of it, each piece is asked for once."""
    grammars = Grammars(runner)

    def rest(_: int) -> None:
        while grammars.prepare():
            pass

    with ThreadPoolExecutor(4) as threads:
        compiled = [threads.submit(grammars.compile, LETTERS) for _ in range(2)]
        list(threads.map(rest, range(2)))
        assert all(each.result().mask().any() for each in compiled)
    assert runner.asked == runner.info.vocab_size
    grammars.close()
