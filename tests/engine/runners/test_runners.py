"""What the engine demands of every runner that computes: sessions, forks, drafts, grammars, interrupts."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.engine.fixtures import PAYING, RunnerFixture, some_tokens
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.output.sampler import log_probability
from vivace.engine.runners.base import KVFull, Span, Stopped
from vivace.engine.wire.frames import (
    Append,
    Fork,
    Generate,
    Grammar,
    Interrupt,
    Open,
    Park,
    Rewind,
    Sampling,
    Score,
    ToEngine,
)

URGENT: ToEngine = Generate("another", "never handed in", [1])
WARM = Sampling(temperature=0.9, seed=11)


def test_incremental_turns_say_what_a_replay_says(fixture: RunnerFixture) -> None:
    """Interrupts, rewinds and forks leave a KV from which the model says the same as from scratch."""
    desk = fixture.desk()
    log = fixture.prompt("Write a python function that adds two numbers.")
    desk.give(Open("s"), Generate("s", "t", list(log), max_tokens=40))
    for _ in range(12):
        desk.engine.step()
    desk.run(Interrupt("t"))
    log += desk.tokens("t")
    more = fixture.tokenizer.encode(" Now in Rust:\n")
    desk.run(Generate("s", "u", more, max_tokens=16))
    log += more
    desk.run(Fork("f", "s", len(log)), Generate("f", "v", [], max_tokens=16))
    desk.run(Rewind("s", len(log)), Generate("s", "w", [], max_tokens=16))
    fresh = fixture.desk()
    fresh.run(Open("r"), Generate("r", "x", list(log), max_tokens=16))
    assert fresh.finished("x").waterfall.cached_tokens == 0
    for turn in "uvw":
        fixture.assert_same(log, desk.tokens(turn), fresh.tokens("x"))


def test_a_second_turn_prefills_only_what_is_new(fixture: RunnerFixture) -> None:
    """Cached and new tokens add up, and new is what was appended and the one token never fed."""
    desk = fixture.desk()
    log = fixture.prompt("Say hello.")
    desk.run(Open("s"), Generate("s", "t", list(log), max_tokens=8))
    said = len(desk.tokens("t"))
    more = fixture.tokenizer.encode(" And again")
    desk.run(Generate("s", "u", more, max_tokens=4))
    waterfall = desk.finished("u").waterfall
    assert waterfall.cached_tokens == len(log) + said - 1
    assert waterfall.new_tokens == len(more) + 1


def test_scores_are_the_models_probabilities(fixture: RunnerFixture) -> None:
    """The greedy continuation scores best, and a score is the sum of its tokens' log-probabilities."""
    desk = fixture.desk()
    log = fixture.prompt("What is 2 + 2?")
    desk.run(Open("s"), Append("s", "w", log))
    desk.run(Generate("s", "t", [], max_tokens=3))
    best = desk.tokens("t")
    other = fixture.tokenizer.encode("purple elephants")
    desk.run(Rewind("s", len(log)), Score("s", "c", [], [best, other]))
    scores = desk.finished("c").scores
    assert scores[0] > scores[1]
    rows = desk.runner.forward([Span(60, 0, log + best[:-1], want=len(best))])
    expected = sum(log_probability(row, token) for row, token in zip(rows, best, strict=True))
    desk.runner.trim(60, 0)
    assert scores[0] == pytest.approx(expected, abs=0.1)


def test_a_full_kv_raises_and_changes_nothing(small_fixture: RunnerFixture) -> None:
    """Tokens that find no room raise KVFull; after a trim the runner goes on."""
    runner = small_fixture.desk().runner
    token, cells = small_fixture.tokenizer.encode("a")[0], runner.info.context_tokens
    runner.forward([Span(0, 0, [token] * cells, 0)])
    with pytest.raises(KVFull):
        runner.forward([Span(1, 0, [token] * 8, 1)])
    runner.trim(0, cells // 2)
    assert runner.forward([Span(1, 0, [token] * 8, 1)]).shape == (1, runner.info.vocab_size)


def test_a_parked_session_goes_on_as_if_nothing_had_been(fixture: RunnerFixture, tmp_path: Path) -> None:
    """Its KV comes back from disk, and the same text with it."""
    log = fixture.prompt(
        "Count from one to ten, in words, please, and tell me then what comes after ten and why."
    )
    expected = fixture.desk()
    expected.run(Open("s"), Generate("s", "t", list(log), max_tokens=6))
    expected.run(Generate("s", "u", [], max_tokens=10))
    parked_cache = ParkedCache(tmp_path, kv_format=fixture.runner.info.kv_format, limit_bytes=1 << 30)
    desk = fixture.desk(parked_cache)
    desk.run(Open("s"), Generate("s", "t", list(log), max_tokens=6), Append("s", "nothing", []))
    desk.run(Park("s"))
    desk.run(Generate("s", "u", [], max_tokens=10))
    assert desk.finished("u").waterfall.restored_tokens >= len(log)
    assert desk.tokens("u") == expected.tokens("u")
    parked_cache.close()


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "seeded"])
def test_drafts_change_no_text(fixture: RunnerFixture, sampling: Sampling) -> None:
    """With a prediction that is wrong in two places: the same tokens in fewer passes."""
    log = fixture.prompt("What does this do?\ndef total(prices): return sum(prices)")
    desk = fixture.desk(costs=PAYING)
    wishes = {"max_tokens": 48, "sampling": sampling, "stop_tokens": [1]}
    desk.run(Open("s"), Generate("s", "off", list(log), use_drafts=False, **wishes))  # type: ignore[arg-type]
    off = desk.tokens("off")
    prediction = [*off[:20], off[20] + 1, *off[21:40], *off[42:]]
    desk = fixture.desk(costs=PAYING)
    desk.run(Open("s"), Generate("s", "on", list(log), prediction=prediction, **wishes))  # type: ignore[arg-type]
    fixture.assert_same(log, desk.tokens("on"), off)
    waterfall = desk.finished("on").waterfall
    assert waterfall.draft_accepted > len(off) // 2
    assert waterfall.steps < waterfall.output_tokens / 2


@pytest.mark.parametrize("use_drafts", [True, False])
def test_a_grammar_is_obeyed(fixture: RunnerFixture, use_drafts: bool) -> None:
    """Whatever the model would like to say, its text fits the pattern."""
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    pattern = "[a-z]{3,9}-[0-9]{2,4} is [A-Z][a-z]{1,5}"
    desk = fixture.desk()
    work = Generate("s", "t", fixture.prompt("Who?"), max_tokens=60, use_drafts=use_drafts)
    work.grammar = Grammar("regex", pattern)
    try:
        desk.run(Open("s"), work)
        assert desk.finished("t").reason == "stop"
        assert re.fullmatch(pattern, fixture.text(desk.tokens("t")))
    finally:
        desk.engine.close()


def test_choices_with_penalties_are_the_samplers(fixture: RunnerFixture) -> None:
    """A turn with penalties, a bias and log-probabilities says the same with drafts and without."""
    sampling = Sampling(
        temperature=0.7, top_p=0.95, frequency_penalty=0.5, logit_bias={5: -3.0}, seed=3, top_logprobs=2
    )
    texts = []
    for use_drafts in (True, False):
        desk = fixture.desk(costs=PAYING)
        log = fixture.prompt("aaaa bbbb aaaa bbbb")
        desk.run(Open("s"), Generate("s", "t", log, max_tokens=20, sampling=sampling, use_drafts=use_drafts))
        texts.append(desk.tokens("t"))
        logprobs = [each for frame in desk.sent for each in getattr(frame, "logprobs", [])]
        assert [each.chosen.token for each in logprobs] == texts[-1]
    fixture.assert_same(fixture.prompt("aaaa bbbb aaaa bbbb"), texts[0], texts[1])


def test_a_stop_string_ends_the_turn_there(fixture: RunnerFixture) -> None:
    """The token that completes it is the last; what was begun ahead of it leaves no trace."""
    desk = fixture.desk()
    log = fixture.prompt("Tell me something.")
    desk.run(Open("s"), Generate("s", "long", list(log), max_tokens=24, use_drafts=False))
    said = desk.tokens("long")
    stop = fixture.text(said[8:10])
    first = next(i for i in range(len(said)) if stop in fixture.text(said[: i + 1]))
    desk.run(Rewind("s", len(log)), Generate("s", "t", [], max_tokens=24, stop=[stop], use_drafts=False))
    fixture.assert_same(log, desk.tokens("t"), said[: first + 1])
    desk.run(Generate("s", "u", [], max_tokens=24 - first - 1, use_drafts=False))
    fixture.assert_same(log, said[: first + 1] + desk.tokens("u"), said)


def test_two_turns_beside_each_other_say_what_each_says_alone(fixture: RunnerFixture) -> None:
    """Their passes alternate or are shared; neither touches the other's KV."""
    logs = {name: fixture.prompt(f"Tell me about {name}.") for name in ("cats", "dogs")}
    alone = {}
    for name, log in logs.items():
        desk = fixture.desk()
        desk.run(Open(name), Generate(name, name, list(log), max_tokens=12))
        alone[name] = desk.tokens(name)
    desk = fixture.desk()
    desk.give(*(Open(name) for name in logs))
    desk.run(*(Generate(name, name, list(log), max_tokens=12) for name, log in logs.items()))
    for name, log in logs.items():
        fixture.assert_same(log, desk.tokens(name), alone[name])


@pytest.mark.parametrize("asks", [1, 2])
def test_a_stopped_pass_leaves_the_kv_unchanged(small_fixture: RunnerFixture, asks: int) -> None:
    """Stopped at the k-th question: the same pass again gives the same logits, bit for bit."""
    runner = small_fixture.desk().runner
    tokens = some_tokens(small_fixture, 128)
    runner.forward([Span(0, 0, tokens[:100])])
    runner.share(0, 1, 50)
    spans = [Span(0, 100, tokens[100:], want=1), Span(1, 50, tokens[:60], want=1)]
    expected = runner.forward(spans).copy()
    runner.trim(0, 100)
    runner.trim(1, 50)
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked >= asks

    with pytest.raises(Stopped):
        runner.forward(spans, should_stop)
    assert np.array_equal(runner.forward(spans), expected)


def test_a_turn_that_was_stopped_says_the_same(fixture: RunnerFixture) -> None:
    """A long prompt is stopped twice on its way into the KV, and the answer is that of a quiet run."""
    log = some_tokens(fixture, 150)
    said = []
    for stops in (set(), {1, 4}):
        desk = fixture.desk()
        desk.give(Open("s"))
        desk.give(Generate("s", "t", list(log), max_tokens=4, tier="background", use_drafts=False))
        step = 0
        while not desk.engine.is_idle:
            desk.engine.step((lambda: [URGENT]) if step in stops else tuple)
            step += 1
        said.append(desk.tokens("t"))
    assert said[0] == said[1]


@pytest.mark.parametrize("then", ["steer", "rewind", "fork"])
def test_an_interrupt_in_the_middle_of_fast_decoding(fixture: RunnerFixture, then: str) -> None:
    """What was begun ahead when the turn ended is not in what comes next."""
    desk = fixture.desk()
    log = fixture.prompt("Go on and on.")
    desk.give(Open("s"), Generate("s", "t", list(log), max_tokens=100, use_drafts=False))
    while len(desk.tokens("t")) < 9:
        desk.engine.step()
    desk.run(Interrupt("t"))
    said, kept, more = log + desk.tokens("t"), len(log) + 4, fixture.tokenizer.encode(" But")
    whole = said + more if then == "steer" else said[:kept] + more
    if then == "rewind":
        desk.run(Rewind("s", kept))
    elif then == "fork":
        desk.run(Fork("f", "s", kept))
    desk.run(Generate("f" if then == "fork" else "s", "u", more, max_tokens=8))
    fresh = fixture.desk()
    fresh.run(Open("r"), Generate("r", "x", list(whole), max_tokens=8))
    fixture.assert_same(whole, desk.tokens("u"), fresh.tokens("x"))
