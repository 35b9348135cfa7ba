"""What the engine does with frames, on a runner whose every token depends on the whole KV."""

import pytest

from tests.engine.desk import CHUNK_TOKENS, Desk
from tests.engine.hashing import END, HashRunner, next_token
from vivace.engine.wire.frames import (
    Append,
    Close,
    Fork,
    Generate,
    Interrupt,
    Open,
    Rewind,
    Score,
    Stats,
    StatsReply,
)


def replay(log: list[int], count: int) -> list[int]:
    """What a model that prefills everything from scratch would say after `log`."""
    said: list[int] = []
    while len(said) < count:
        said.append(next_token(log + said))
        if said[-1] == END:
            break
    return said


@pytest.fixture
def desk() -> Desk:
    return Desk(HashRunner())


def test_tokens_come_out_as_they_are_made(desk: Desk) -> None:
    """Each step of a running turn sends its token before the next step begins."""
    desk.give(Open("s"), Generate("s", "t", [1, 2, 3], max_tokens=4))
    seen = []
    while not desk.engine.is_idle:
        desk.engine.step()
        seen.append(len(desk.tokens("t")))
    assert seen == [1, 2, 3, 4]
    assert desk.tokens("t") == replay([1, 2, 3], 4)


def test_a_turn_ends_at_its_token_limit(desk: Desk) -> None:
    """max_tokens ends the turn with reason length."""
    desk.run(Open("s"), Generate("s", "t", [5], max_tokens=3))
    assert desk.finished("t").reason == "length"
    assert desk.finished("t").waterfall.output_tokens == 3


def test_a_turn_ends_at_the_models_end_token() -> None:
    """The model's own end token ends the turn with reason stop, and is in the log."""
    start = next(t for t in range(60) if END in replay([t], 40))
    desk = Desk(HashRunner())
    desk.run(Open("s"), Generate("s", "t", [start], max_tokens=200))
    assert desk.finished("t").reason == "stop"
    assert desk.tokens("t") == replay([start], 200)
    assert desk.tokens("t")[-1] == END


def test_a_stop_string_ends_the_turn_across_token_borders(desk: Desk) -> None:
    """A stop string that lies in two tokens ends the turn with the token that completes it."""
    said = replay([7], 10)
    stop = "".join(chr(t + 32) for t in said[3:5])
    desk.run(Open("s"), Generate("s", "t", [7], max_tokens=10, stop=["never", stop]))
    assert desk.finished("t").reason == "stop"
    assert desk.tokens("t") == said[:5]


def test_a_second_turn_prefills_only_what_is_new(desk: Desk) -> None:
    """Law 2: a continuation prefills its own tokens, plus the last one sampled, which was never fed."""
    desk.run(Open("s"), Generate("s", "t1", list(range(40)), max_tokens=6))
    desk.run(Generate("s", "t2", [9, 9, 9], max_tokens=5))
    waterfall = desk.finished("t2").waterfall
    assert (waterfall.cached_tokens, waterfall.new_tokens) == (45, 4)
    first = replay(list(range(40)), 6)
    assert desk.tokens("t2") == replay([*range(40), *first, 9, 9, 9], 5)


def test_a_long_prompt_is_fed_in_chunks(desk: Desk) -> None:
    """No prefill step is larger than a chunk, so an interrupt never waits for more than one."""
    prompt = [i % 50 for i in range(3 * CHUNK_TOKENS + 4)]
    desk.run(Open("s"), Generate("s", "t", prompt, max_tokens=1))
    runner = desk.runner
    assert isinstance(runner, HashRunner)
    assert runner.passes == [CHUNK_TOKENS, CHUNK_TOKENS, CHUNK_TOKENS, 4]


def test_an_interrupt_during_decode_keeps_the_partial(desk: Desk) -> None:
    """An interrupted turn ends at once; what it said stays in the log for the next turn."""
    desk.give(Open("s"), Generate("s", "t", [3], max_tokens=50))
    for _ in range(4):
        desk.engine.step()
    desk.give(Interrupt("t"))
    assert desk.finished("t").reason == "interrupted"
    assert desk.engine.is_idle
    partial = desk.tokens("t")
    assert partial == replay([3], 4)
    desk.run(Generate("s", "u", [8], max_tokens=3))
    assert desk.tokens("u") == replay([3, *partial, 8], 3)


def test_an_interrupt_during_prefill_ends_the_turn_before_the_next_chunk(desk: Desk) -> None:
    """A turn interrupted in prefill says nothing and feeds no further chunk."""
    desk.give(Open("s"), Generate("s", "t", [1] * 200, max_tokens=5))
    desk.engine.step()
    desk.give(Interrupt("t"))
    assert desk.finished("t").reason == "interrupted"
    assert desk.tokens("t") == []
    assert isinstance(desk.runner, HashRunner)
    assert sum(desk.runner.passes) == CHUNK_TOKENS


def test_an_interrupt_of_a_queued_turn_ends_it_without_work(desk: Desk) -> None:
    """A turn that never ran ends as interrupted too, exactly once."""
    desk.give(
        Open("a"), Open("b"), Generate("a", "t", [1], max_tokens=3), Generate("b", "u", [2], max_tokens=3)
    )
    desk.run(Interrupt("u"), Interrupt("u"))
    assert desk.finished("u").reason == "interrupted"
    assert desk.tokens("u") == []
    assert desk.tokens("t") == replay([1], 3)


def test_an_interrupt_of_an_unknown_turn_changes_nothing(desk: Desk) -> None:
    """An interrupt that comes after the end is not an error: it lost a race."""
    desk.run(Open("s"), Generate("s", "t", [1], max_tokens=2), Interrupt("gone"))
    assert desk.finished("t").reason == "length"


def test_rewind_forgets_the_end_of_the_log(desk: Desk) -> None:
    """After a rewind the session goes on as if the cut tokens had never been."""
    desk.run(Open("s"), Generate("s", "t", [1, 2, 3], max_tokens=8))
    desk.run(Rewind("s", 2), Generate("s", "u", [4], max_tokens=5))
    assert desk.tokens("u") == replay([1, 2, 4], 5)
    assert desk.finished("u").waterfall.cached_tokens == 2


def test_a_fork_starts_from_its_parents_kv(desk: Desk) -> None:
    """A fork prefills nothing that its parent holds, and neither disturbs the other."""
    desk.run(Open("s"), Generate("s", "t", list(range(30)), max_tokens=4))
    desk.run(Fork("f", "s", 20), Generate("f", "u", [50], max_tokens=4))
    desk.run(Generate("s", "v", [51], max_tokens=4))
    assert desk.finished("u").waterfall.cached_tokens == 20
    assert desk.tokens("u") == replay([*range(20), 50], 4)
    assert desk.tokens("v") == replay([*range(30), *desk.tokens("t"), 51], 4)


def test_a_new_session_shares_the_prefix_of_another(desk: Desk) -> None:
    """A client that sends its whole history again is matched by token prefix."""
    desk.run(Open("s"), Generate("s", "t", list(range(30)), max_tokens=2))
    desk.run(Open("n"), Generate("n", "u", [*range(25), 60], max_tokens=3))
    assert desk.finished("u").waterfall.cached_tokens == 25
    assert desk.tokens("u") == replay([*range(25), 60], 3)


def test_append_prefills_and_says_nothing(desk: Desk) -> None:
    """A warm-up leaves only the last token to feed when the turn comes."""
    desk.run(Open("s"), Append("s", "w", list(range(50))))
    assert desk.finished("w").reason == "appended"
    desk.run(Generate("s", "t", [], max_tokens=3))
    assert desk.finished("t").waterfall.new_tokens == 1
    assert desk.tokens("t") == replay(list(range(50)), 3)


def test_scoring_prefers_what_the_model_would_say_and_leaves_no_trace(desk: Desk) -> None:
    """The likeliest candidate scores best, and the turn after it is the same as without scoring."""
    said = replay([1, 2], 3)
    wrong = [(said[0] + 1) % 60, *said[1:]]
    late = [*said[:2], (said[2] + 1) % 60]
    desk.run(Open("s"), Score("s", "c", [1, 2], [wrong, said, late, []]))
    scores = desk.finished("c").scores
    assert scores[1] > scores[2] > scores[0]
    assert scores[3] == 0.0
    desk.run(Generate("s", "t", [], max_tokens=4))
    assert desk.tokens("t") == replay([1, 2], 4)


def test_many_candidates_are_scored_in_several_passes(desk: Desk) -> None:
    """More candidates than scratch sequences give the same scores as one at a time."""
    candidates = [[i, i + 1] for i in range(40)]
    desk.run(Open("s"), Score("s", "all", [5], candidates))
    together = desk.finished("all").scores
    for index, candidate in enumerate(candidates):
        desk.run(Score("s", f"one{index}", [], [candidate]))
        assert desk.finished(f"one{index}").scores == pytest.approx([together[index]])


def test_scoring_beside_a_running_turn_waits_for_room() -> None:
    """Candidates that do not fit beside an older turn are scored once it is over, and nothing is lost."""
    desk = Desk(HashRunner(context_tokens=100))
    prompt = next([p] * 60 for p in range(60) if END not in replay([p] * 60, 6))
    best = replay([9] * 20, 4)
    desk.give(Open("a"), Open("b"), Generate("a", "t", prompt, max_tokens=6))
    desk.engine.step()
    desk.run(Score("b", "c", [9] * 20, [best, [1, 2, 3, 4], [5, 6, 7, 8]]))
    assert desk.tokens("t") == replay(prompt, 6)
    scores = desk.finished("c").scores
    assert scores[0] == max(scores)
    desk.run(Generate("b", "u", [], max_tokens=4))
    assert desk.tokens("u") == best


def test_two_turns_take_turns(desk: Desk) -> None:
    """Turns of two sessions advance side by side, one step each."""
    desk.give(
        Open("a"), Open("b"), Generate("a", "t", [1], max_tokens=5), Generate("b", "u", [2], max_tokens=5)
    )
    for _ in range(4):
        desk.engine.step()
    assert len(desk.tokens("t")) == len(desk.tokens("u")) > 0


def test_a_full_kv_evicts_the_least_recently_used_session() -> None:
    """When the KV is full, an idle session gives its cells up and comes back by prefill, text unchanged."""
    desk = Desk(HashRunner(context_tokens=100))
    desk.run(Open("old"), Generate("old", "t1", [1] * 40, max_tokens=4))
    desk.run(Open("new"), Generate("new", "t2", [2] * 70, max_tokens=4))
    assert desk.tokens("t2") == replay([2] * 70, 4)
    desk.run(Generate("old", "t3", [3], max_tokens=4))
    assert desk.finished("t3").waterfall.cached_tokens == 0
    assert desk.tokens("t3") == replay([*[1] * 40, *desk.tokens("t1"), 3], 4)


@pytest.mark.parametrize("length", [60, 70, 85])
def test_two_running_turns_that_do_not_fit_both_finish(length: int) -> None:
    """The younger of two turns that do not fit together waits for room, then says the same as alone."""
    desk = Desk(HashRunner(context_tokens=100))
    desk.give(Open("a"), Open("b"))
    desk.run(Generate("a", "t", [1] * length, max_tokens=6), Generate("b", "u", [2] * length, max_tokens=6))
    assert desk.tokens("t") == replay([1] * length, 6)
    assert desk.tokens("u") == replay([2] * length, 6)


def test_the_oldest_turn_takes_room_from_a_younger_one() -> None:
    """A turn that grows into the room of a younger running one gets it; the younger starts again."""
    desk = Desk(HashRunner(context_tokens=100))
    prompt = next([p] * 40 for p in range(60) if END not in replay([p] * 40, 40))
    desk.give(Open("a"), Open("b"), Generate("a", "t", prompt, max_tokens=40))
    desk.engine.step()
    desk.run(Generate("b", "u", [61] * 40, max_tokens=30))
    assert desk.tokens("t") == replay(prompt, 40)
    assert desk.tokens("u") == replay([61] * 40, 30)


def test_a_prompt_beyond_the_context_is_refused_before_prefill() -> None:
    """What cannot fit is refused with the sizes, and the session is as before."""
    desk = Desk(HashRunner(context_tokens=64))
    desk.run(Open("s"), Generate("s", "t", [1] * 65, max_tokens=5))
    assert desk.failed("t").code == "context_length_exceeded"
    assert "66" in desk.failed("t").message
    desk.run(Generate("s", "u", [1], max_tokens=2))
    assert desk.tokens("u") == replay([1], 2)


def test_a_turn_stops_where_the_context_ends() -> None:
    """A turn that fills the context ends with reason length."""
    desk = Desk(HashRunner(context_tokens=64))
    prompt = next([p] * 50 for p in range(60) if END not in replay([p] * 50, 14))
    desk.run(Open("s"), Generate("s", "t", prompt, max_tokens=500))
    assert desk.finished("t").reason == "length"
    assert len(desk.tokens("t")) == 14


def test_an_unknown_session_is_answered(desk: Desk) -> None:
    """Every refused frame that carries a turn gets an answer for that turn."""
    desk.run(Generate("nobody", "t", [1]))
    assert desk.failed("t").code == "invalid_request_error"


def test_a_session_has_one_turn_at_a_time(desk: Desk) -> None:
    """A second turn on a busy session is refused, and the first goes on undisturbed."""
    desk.run(Open("s"), Generate("s", "t", [1], max_tokens=4), Generate("s", "u", [2], max_tokens=4))
    assert desk.failed("u").code == "invalid_request_error"
    assert desk.tokens("t") == replay([1], 4)


def test_closing_a_session_ends_its_running_turn(desk: Desk) -> None:
    """A turn whose session is closed ends exactly once, and its cells are free."""
    desk.give(Open("s"), Generate("s", "t", [1, 2], max_tokens=50))
    desk.engine.step()
    desk.run(Close("s"), Stats())
    assert desk.finished("t").reason == "interrupted"
    reply = desk.sent[-1]
    assert isinstance(reply, StatsReply)
    assert (reply.sessions, reply.turns, reply.kv_tokens) == (0, 0, 0)
    assert isinstance(desk.runner, HashRunner)
    assert not any(desk.runner.kv.values())


def test_more_sessions_than_sequences_share_them() -> None:
    """Sessions beyond the runner's sequences evict the oldest, and every one still answers right."""
    desk = Desk(HashRunner(sequences=18))  # two beside the scratch ones
    for name in "abcd":
        desk.run(Open(name), Generate(name, f"t{name}", [ord(name) - 60], max_tokens=3))
        assert desk.tokens(f"t{name}") == replay([ord(name) - 60], 3)


def test_a_session_that_began_with_nothing_shares_a_prefix_all_the_same() -> None:
    """A warm-up without a token takes a sequence; what comes next still begins with what others hold."""
    desk = Desk(HashRunner())
    prompt = list(range(1, 40))
    desk.run(Open("first"), Generate("first", "a", prompt, max_tokens=2))
    desk.run(Open("second"), Append("second", "warm", []))
    desk.run(Generate("second", "b", [*prompt, 50, 51], max_tokens=2))
    waterfall = desk.finished("b").waterfall
    assert waterfall.cached_tokens >= len(prompt) - 1
    assert waterfall.new_tokens <= 3
