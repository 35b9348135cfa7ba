"""How far a long prompt is read is told before the first token, and only then."""

import pytest

from tests.engine.desk import CHUNK_TOKENS, Desk
from tests.engine.hashing import HashRunner
from vivace.engine.loop import stepper
from vivace.engine.wire.frames import Append, FromEngine, Generate, Open, Reading, Score, Tokens

PROMPT = [token % 50 for token in range(3 * CHUNK_TOKENS + 8)]


@pytest.fixture
def desk() -> Desk:
    desk = Desk(HashRunner(4096, 512))
    desk.give(Open("s"))
    return desk


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepper, "READING_EVERY_S", 0.0)


def kinds(frames: list[FromEngine]) -> list[str]:
    return [type(frame).__name__ for frame in frames]


@pytest.mark.usefixtures("at_once")
def test_a_long_prompt_tells_how_far_it_is_read(desk: Desk) -> None:
    """Once a chunk, of what is new; the last chunk says the first token instead."""
    desk.run(Append("s", "before", PROMPT[:40]))
    desk.run(Generate("s", "t", PROMPT[40:], max_tokens=3))
    total = len(PROMPT) - 40
    told = [frame for frame in desk.sent if isinstance(frame, Reading)]
    assert told == [Reading("t", read, total) for read in range(CHUNK_TOKENS, total, CHUNK_TOKENS)]
    first = next(index for index, frame in enumerate(desk.sent) if isinstance(frame, Tokens))
    assert "Reading" not in kinds(desk.sent[first:])


@pytest.mark.usefixtures("at_once")
def test_candidates_tell_it_too(desk: Desk) -> None:
    """Somebody waits for the scores of an edit's candidates just so."""
    desk.run(Score("s", "t", PROMPT, [[1, 2], [3]]))
    assert "Reading" in kinds(desk.sent)
    assert desk.finished("t").reason == "scored"


@pytest.mark.usefixtures("at_once")
def test_text_that_is_still_typed_tells_nothing(desk: Desk) -> None:
    """Nobody waits for what is read ahead."""
    desk.run(Append("s", "typed", PROMPT, is_provisional=True))
    assert "Reading" not in kinds(desk.sent)


def test_a_prompt_that_is_read_soon_tells_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast machine has no use for it."""
    monkeypatch.setattr(stepper, "READING_EVERY_S", 3600.0)
    desk.run(Generate("s", "t", PROMPT, max_tokens=3))
    assert "Reading" not in kinds(desk.sent)
