"""Law 3: text is prefilled while it is typed, gives way to turns, and is no part of the log before Enter."""

import pytest

from tests.engine.desk import CHUNK_TOKENS, Desk
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import endless
from tests.engine.turns.test_drafts import repeating
from vivace.engine.wire.frames import (
    Append,
    Failed,
    Finished,
    Fork,
    Generate,
    Interrupt,
    Open,
    Park,
    Rewind,
    Sampling,
    Score,
    ToEngine,
)

LOG = list(range(30))
TYPED = [40 + i % 20 for i in range(100)]


def make_desk(context_tokens: int = 2048) -> Desk:
    return Desk(HashRunner(context_tokens, 64, endless))


@pytest.fixture
def desk() -> Desk:
    """A session `s` with LOG in the KV."""
    desk = make_desk()
    desk.run(Open("s"), Append("s", "log", list(LOG)))
    return desk


def type_in(turn: str, tokens: list[int], session: str = "s") -> Append:
    return Append(session, turn, list(tokens), is_provisional=True)


def passes(desk: Desk) -> list[int]:
    assert isinstance(desk.runner, HashRunner)
    return desk.runner.passes


def alone(log: list[int], count: int = 4) -> list[int]:
    desk = make_desk()
    desk.run(Open("s"), Generate("s", "t", list(log), max_tokens=count))
    return desk.tokens("t")


def test_typed_text_is_prefilled_in_idle_time(desk: Desk) -> None:
    """A provisional tail goes into the KV, in chunks, and says nothing."""
    before = len(passes(desk))
    desk.run(type_in("p", TYPED))
    assert desk.finished("p").reason == "appended"
    assert passes(desk)[before:] == [CHUNK_TOKENS, len(TYPED) - CHUNK_TOKENS]
    assert desk.tokens("p") == []


def test_a_changed_end_is_prefilled_from_the_change_on(desk: Desk) -> None:
    """Of the next version of the text, only what comes after the common beginning is new."""
    desk.run(type_in("p", TYPED))
    desk.run(type_in("q", [*TYPED[:80], 1, 2, 3]))
    waterfall = desk.finished("q").waterfall
    assert (waterfall.cached_tokens, waterfall.new_tokens) == (len(LOG) + 80, 3)


def test_deleting_the_end_prefills_nothing(desk: Desk) -> None:
    """A shorter version of the same text costs no pass at all."""
    desk.run(type_in("p", TYPED))
    before = len(passes(desk))
    desk.run(type_in("q", TYPED[:50]))
    assert desk.finished("q").reason == "appended"
    assert len(passes(desk)) == before


def test_enter_finds_the_prompt_in(desk: Desk) -> None:
    """Generate with the typed text feeds its last token only, and says what it would say without typing."""
    desk.run(type_in("p", TYPED))
    desk.run(Generate("s", "t", list(TYPED), max_tokens=4))
    assert desk.finished("t").waterfall.new_tokens == 1
    assert desk.tokens("t") == alone(LOG + TYPED)


def test_enter_with_more_text_prefills_what_is_new(desk: Desk) -> None:
    """What the template adds behind the typed text is prefilled, and nothing else."""
    desk.run(type_in("p", TYPED))
    desk.run(Generate("s", "t", [*TYPED, 7, 8], max_tokens=4))
    assert desk.finished("t").waterfall.new_tokens == 2
    assert desk.tokens("t") == alone([*LOG, *TYPED, 7, 8])


def test_enter_with_another_text_forgets_what_was_typed(desk: Desk) -> None:
    """Text that was typed and not sent leaves no trace in what the model says."""
    desk.run(type_in("p", TYPED))
    desk.run(Generate("s", "t", [9, 9], max_tokens=4))
    assert desk.tokens("t") == alone([*LOG, 9, 9])
    assert desk.finished("t").waterfall.cached_tokens == len(LOG)


def test_typing_gives_way_to_a_realtime_turn() -> None:
    """A realtime turn of another session runs before text that is still being typed."""
    desk = make_desk()
    desk.give(Open("s"), Open("quick"), type_in("p", TYPED * 5))
    desk.engine.step()
    desk.give(Generate("quick", "r", [1], max_tokens=10, use_drafts=False))
    for _ in range(10):
        desk.engine.step()
    assert desk.finished("r").reason == "length"
    assert not any(isinstance(frame, Finished) and frame.turn == "p" for frame in desk.sent)
    desk.run()
    assert desk.finished("p").reason == "appended"


@pytest.mark.parametrize(
    "successor",
    [
        type_in("q", TYPED),
        Append("s", "q", list(TYPED)),
        Generate("s", "q", list(TYPED), max_tokens=2),
        Score("s", "q", list(TYPED), [[1], [2]]),
    ],
    ids=["typing", "append", "generate", "score"],
)
def test_what_comes_next_replaces_typing(desk: Desk, successor: ToEngine) -> None:
    """A provisional append that still runs ends as replaced, once, and what it has prefilled is kept."""
    desk.give(type_in("p", TYPED))
    desk.engine.step()
    desk.run(successor)
    assert desk.finished("p").reason == "replaced"
    assert desk.finished("q").waterfall.cached_tokens >= len(LOG) + CHUNK_TOKENS - 1


@pytest.mark.parametrize(
    "refused",
    [
        Generate("s", "q", [999]),
        Generate("s", "q", [1], max_tokens=0),
        Generate("s", "busy", [1]),
        Append("s", "q", [1] * 5000),
        Score("s", "q", [], [[1] * 400]),
    ],
    ids=["token", "limit", "taken id", "too long", "long candidate"],
)
def test_a_refused_request_does_not_replace_typing(desk: Desk, refused: ToEngine) -> None:
    """What cannot be done changes nothing: the provisional append goes on to its end."""
    desk.give(Open("other"), Generate("other", "busy", [1], max_tokens=50), type_in("p", TYPED))
    desk.run(refused)
    assert sum(isinstance(frame, Failed) for frame in desk.sent) == 1
    assert desk.finished("p").reason == "appended"


def test_interrupted_typing_keeps_what_was_prefilled(desk: Desk) -> None:
    """An interrupt ends the provisional append; its part of the KV still serves what comes next."""
    desk.give(type_in("p", TYPED))
    desk.engine.step()
    desk.run(Interrupt("p"))
    assert desk.finished("p").reason == "interrupted"
    desk.run(Generate("s", "t", list(TYPED), max_tokens=4))
    assert desk.finished("t").waterfall.cached_tokens == len(LOG) + CHUNK_TOKENS
    assert desk.tokens("t") == alone(LOG + TYPED)


@pytest.mark.parametrize("length", [0, 10, len(LOG)])
def test_a_rewind_drops_the_tail(desk: Desk, length: int) -> None:
    """After a rewind to any place of the log, the typed text is gone."""
    desk.run(type_in("p", TYPED))
    desk.run(Rewind("s", length), Generate("s", "t", [5], max_tokens=4))
    assert desk.tokens("t") == alone([*LOG[:length], 5])


@pytest.mark.parametrize("frame", [Rewind("s", len(LOG) + 5), Fork("f", "s", len(LOG) + 5)])
def test_the_tail_is_no_place_to_rewind_or_fork_to(desk: Desk, frame: ToEngine) -> None:
    """The log ends where the tail begins: beyond it there is nothing to go back to."""
    desk.run(type_in("p", TYPED))
    desk.run(frame)
    (refused,) = [each for each in desk.sent if isinstance(each, Failed)]
    assert "30 tokens" in refused.message


def test_a_fork_takes_the_log_without_the_tail(desk: Desk) -> None:
    """A fork at the end of the log goes on from the log."""
    desk.run(type_in("p", TYPED))
    desk.run(Fork("f", "s", len(LOG)), Generate("f", "t", [6], max_tokens=4))
    assert desk.tokens("t") == alone([*LOG, 6])


def test_a_parked_session_goes_on_without_the_tail(desk: Desk) -> None:
    """Park, then a turn: the log and the new tokens, nothing else."""
    desk.run(type_in("p", TYPED))
    desk.run(Park("s"))
    desk.run(Generate("s", "t", [6], max_tokens=4))
    assert desk.tokens("t") == alone([*LOG, 6])


def test_candidates_are_scored_without_the_tail(desk: Desk) -> None:
    """Scores are those after the log, not after the text that was typed."""
    best = alone(LOG, 2)
    desk.run(type_in("p", TYPED))
    desk.run(Score("s", "c", [], [best, [(best[0] + 1) % 60, 3]]))
    assert desk.finished("c").scores[0] > desk.finished("c").scores[1]


def test_the_tail_does_not_count_against_the_context() -> None:
    """A long tail does not refuse a prompt that fits without it."""
    desk = make_desk(context_tokens=200)
    desk.run(Open("s"), Append("s", "log", list(LOG)))
    desk.run(type_in("p", TYPED))
    desk.run(Generate("s", "t", [3] * 150, max_tokens=4))
    assert desk.tokens("t") == alone([*LOG, *[3] * 150])


@pytest.mark.parametrize("typed", [[], TYPED, [1, 2, 3]])
def test_penalties_count_what_was_sent_only(typed: list[int]) -> None:
    """However a prompt came in, and whatever was typed before, the same words are penalised."""
    sampling = Sampling(repetition_penalty=1.8)
    expected = Desk(HashRunner(logits=repeating))
    expected.run(Open("s", [*LOG, 5]), Generate("s", "t", [], max_tokens=12, sampling=sampling))
    desk = Desk(HashRunner(logits=repeating))
    desk.run(Open("s", list(LOG)), type_in("p", typed))
    desk.run(Generate("s", "t", [5], max_tokens=12, sampling=sampling))
    assert desk.tokens("t") == expected.tokens("t")
