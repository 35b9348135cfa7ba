"""A runner that chooses tokens itself: the engine says the same, whichever way the tokens come."""

import random
from collections.abc import Callable, Sequence

import pytest

from tests.engine.desk import CHUNK_TOKENS, Desk
from tests.engine.fixtures import PAYING
from tests.engine.hashing import END, HashRunner, next_token
from vivace.engine.runners.base import (
    KVFull,
    Logits,
    SamplingSpec,
    ShouldStop,
    Span,
    Stopped,
    WhileRunning,
)
from vivace.engine.wire.frames import Generate, Interrupt, Open, Rewind, Sampling


class DecodingRunner(HashRunner):
    """Says what follows with one hash a token; `steps_ahead` is noted, and what was begun leaves no trace."""

    def __init__(self) -> None:
        super().__init__(4096, 64)
        self.asked: list[tuple[int, int]] = []
        self.read: list[int] = []  # tokens of each prompt whose first token it chose
        self.noted: Callable[[], None] = lambda: None  # called when a pass is under way

    def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
        del sampling
        self.read.append(len(span.tokens))
        (row,) = self.forward([span], should_stop)
        return int(row.argmax())

    def decode(
        self, span: Span, sampling: SamplingSpec, steps_ahead: int, while_running: WhileRunning
    ) -> list[int]:
        self.asked.append((len(span.tokens), steps_ahead))
        while_running()
        self.noted()
        before = [cell.token for cell in self.kv.get(span.seq, [])]
        self.forward([span._replace(want=0)])
        said: list[int] = []
        for expected, held in zip([*span.tokens[1:], -1], prefixes(before, span.tokens), strict=True):
            said.append(next_token(held))
            if said[-1] != expected or said[-1] in sampling.stops:
                break
        return said


def prefixes(before: list[int], tokens: Sequence[int]) -> list[list[int]]:
    return [before + list(tokens[: count + 1]) for count in range(len(tokens))]


def draw_turns(seed: int) -> list[Generate]:
    chance = random.Random(seed)
    turns = []
    for turn in range(6):
        log = [chance.randrange(60) for _ in range(chance.randint(1, 80))]
        work = Generate("s", str(turn), log, max_tokens=chance.randint(1, 60))
        work.stop_tokens = [chance.randrange(60)] if chance.random() < 0.3 else []
        stop = [chance.randrange(60) for _ in range(chance.randint(1, 2))]
        work.stop = ["".join(chr(32 + token) for token in stop)] if chance.random() < 0.5 else []
        work.use_drafts = chance.random() < 0.7
        turns.append(work)
    return turns


@pytest.mark.parametrize("seed", range(12))
def test_turns_say_the_same_either_way(seed: int) -> None:
    """Random prompts, stops and limits, predictions right and half right: the same tokens, the same KV."""
    plain, decoding = Desk(HashRunner(4096, 64), costs=PAYING), Desk(DecodingRunner(), costs=PAYING)
    for desk in (plain, decoding):
        desk.give(Open("s"))
        for work in draw_turns(seed):
            if desk is decoding:
                work.prediction = plain.tokens(work.turn)
                if len(work.prediction) > 9 and seed % 2:
                    work.prediction[5] = 7
            desk.run(work)
            if work.turn == "2":
                desk.run(Rewind("s", 5))
    for work in draw_turns(seed):
        assert decoding.tokens(work.turn) == plain.tokens(work.turn)
        assert decoding.finished(work.turn).reason == plain.finished(work.turn).reason
    assert held_by(decoding) == held_by(plain)


def held_by(desk: Desk) -> list[int]:
    assert isinstance(desk.runner, HashRunner)
    (cells,) = (cells for cells in desk.runner.kv.values() if cells)
    return [cell.token for cell in cells]


def test_what_needs_logits_gets_them() -> None:
    """Penalties, a cut, a bias or log-probabilities are not for the runner; a temperature alone is."""
    for sampling, is_decoded in (
        (Sampling(), True),
        (Sampling(temperature=0.5, seed=3), True),
        (Sampling(temperature=0.5, top_p=0.9), False),
        (Sampling(temperature=0.5, top_k=5), False),
        (Sampling(temperature=0.5, min_p=0.1), False),
        (Sampling(frequency_penalty=0.1), False),
        (Sampling(presence_penalty=0.1), False),
        (Sampling(repetition_penalty=1.1), False),
        (Sampling(logit_bias={3: 1.0}), False),
        (Sampling(top_logprobs=0), False),
    ):
        runner = DecodingRunner()
        desk = Desk(runner)
        desk.run(Open("s"), Generate("s", "t", [1, 2, 3], max_tokens=5, sampling=sampling))
        assert bool(runner.asked) == is_decoded, sampling
        assert runner.read == ([3] if is_decoded else []), sampling


def test_the_first_token_is_chosen_with_the_end_of_the_prompt() -> None:
    """The chunks before it ask for nothing, and a turn goes on from KV that is there already."""
    runner = DecodingRunner()
    desk = Desk(runner)
    desk.run(Open("s"), Generate("s", "t", [7] * (CHUNK_TOKENS * 2 + 5), max_tokens=1))
    assert runner.read == [5]
    desk.run(Generate("s", "u", [], max_tokens=1))
    assert runner.read == [5, 1]
    assert len(desk.tokens("t") + desk.tokens("u")) == 2


class Full(DecodingRunner):
    """Has no room for a prompt beside another session's KV."""

    def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
        if sum(map(bool, self.kv.values())) > bool(self.kv.get(span.seq)):
            raise KVFull
        return super().prefill(span, sampling, should_stop)


def test_a_prompt_whose_token_is_chosen_makes_room() -> None:
    desk = Desk(Full())
    desk.run(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=3))
    desk.run(Open("r"), Generate("r", "u", [5, 6], max_tokens=3))
    assert len(desk.tokens("u")) == 3


def test_a_prompt_whose_token_is_chosen_can_be_stopped() -> None:
    """The runner asks in the middle of it, finds the interrupt, and nothing of the pass is kept."""

    class Long(DecodingRunner):
        def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
            if should_stop and should_stop():
                raise Stopped
            return super().prefill(span, sampling, should_stop)

    runner = Long()
    runner.info = runner.info._replace(can_stop=True)
    desk = Desk(runner)
    desk.give(Open("s"), Generate("s", "t", [7] * CHUNK_TOKENS, max_tokens=3))
    desk.engine.step(lambda: [Interrupt("t")])
    assert not runner.read
    desk.run(Interrupt("t"))
    assert desk.finished("t").reason == "interrupted"


class Broken(DecodingRunner):
    """Its third pass ends in an error that nobody expects."""

    def decode(
        self, span: Span, sampling: SamplingSpec, steps_ahead: int, while_running: WhileRunning
    ) -> list[int]:
        if len(self.asked) == 2:
            raise RuntimeError("the device is gone")
        return super().decode(span, sampling, steps_ahead, while_running)


def test_tokens_are_sent_while_the_next_pass_runs() -> None:
    """Not before it is begun, for waking a reader takes time; but before its own tokens are there."""
    runner = DecodingRunner()
    desk = Desk(runner)
    desk.give(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=6, use_drafts=False))
    desk.engine.step()
    (first,) = desk.tokens("t")  # somebody waits for it, and nothing is under way
    desk.engine.step()
    assert desk.tokens("t") == [first]
    seen: list[int] = []
    runner.noted = lambda: seen.append(len(desk.tokens("t")))
    desk.engine.step()
    assert seen == [2]
    assert len(desk.tokens("t")) == 2


def test_no_token_is_lost_where_a_pass_fails() -> None:
    desk = Desk(Broken())
    desk.give(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=6, use_drafts=False))
    with pytest.raises(RuntimeError, match="gone"):
        desk.run()
    assert len(desk.tokens("t")) == 3


def test_an_interrupt_finds_all_tokens_sent() -> None:
    """The end of a turn never overtakes its tokens."""
    desk = Desk(DecodingRunner())
    desk.give(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=6, use_drafts=False))
    for _ in range(3):
        desk.engine.step()
    desk.run(Interrupt("t"))
    assert len(desk.tokens("t")) == 3
    assert desk.sent[-1] == desk.finished("t")
    assert desk.finished("t").waterfall.output_tokens == 3


def test_a_pass_for_logits_does_not_hold_up_the_tokens_of_another_turn() -> None:
    """Such a pass may be long, and has no moment for sending."""
    lost: list[int] = []

    class Noting(DecodingRunner):
        def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
            if self.asked and spans[0].want:
                lost.append(len(self.asked) + 1 - len(desk.tokens("t")))
            return super().forward(spans, should_stop)

    desk = Desk(Noting())
    desk.give(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=6, use_drafts=False))
    for _ in range(2):
        desk.engine.step()
    desk.run(Open("r"), Generate("r", "u", [5, 6], max_tokens=2, sampling=Sampling(frequency_penalty=0.1)))
    assert lost[0] == 0


def test_steps_are_begun_ahead_for_one_turn_without_drafts() -> None:
    """Two while there is as much to say; fewer at its end; none beside another turn."""
    runner = DecodingRunner()
    desk = Desk(runner)
    desk.run(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=6, use_drafts=False))
    assert END not in desk.tokens("t")
    assert [steps_ahead for _, steps_ahead in runner.asked] == [2, 2, 2, 1, 0]
    runner.asked.clear()
    desk.give(Open("r"), Generate("r", "a", [5, 6], max_tokens=9, use_drafts=False))
    desk.run(Generate("s", "b", [9], max_tokens=4, use_drafts=False))
    assert 0 in [steps_ahead for _, steps_ahead in runner.asked]


def test_no_step_is_begun_ahead_for_background_work_alone() -> None:
    """A realtime turn may arrive at any time: it waits for one pass, and not for those behind it."""
    runner = DecodingRunner()
    desk = Desk(runner)
    desk.run(Open("b"), Generate("b", "work", [1, 2, 4], max_tokens=6, use_drafts=False, tier="background"))
    assert END not in desk.tokens("work")
    assert {steps_ahead for _, steps_ahead in runner.asked} == {0}


def test_steps_are_begun_ahead_beside_background_work() -> None:
    """A lone realtime turn runs ahead up to the pass that belongs to the background, and never past it."""
    runner = DecodingRunner()
    desk = Desk(runner)
    desk.give(Open("b"), Generate("b", "work", [5, 6], max_tokens=50, use_drafts=False, tier="background"))
    desk.give(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=45, use_drafts=False))
    desk.engine.step()  # reads the prompt: the first of 19
    runner.asked.clear()
    while len(runner.asked) < 18:
        desk.engine.step()
    assert [steps_ahead for _, steps_ahead in runner.asked] == [2] * 16 + [1, 0]
    assert not desk.tokens("work")
    desk.engine.step()
    assert len(desk.tokens("work")) == 1
    desk.run()
    alone = Desk(DecodingRunner())
    alone.run(Open("s"), Generate("s", "t", [1, 2, 4], max_tokens=45, use_drafts=False))
    assert desk.tokens("t") == alone.tokens("t")


class Frugal(DecodingRunner):
    """Keeps no KV of a token that ends a turn, nor of what was drafted behind it."""

    def decode(
        self, span: Span, sampling: SamplingSpec, steps_ahead: int, while_running: WhileRunning
    ) -> list[int]:
        said = super().decode(span, sampling, steps_ahead, while_running)
        if said[-1] in sampling.stops:
            self.trim(span.seq, span.start + len(said))
        return said


def test_a_drafted_end_need_not_be_in_the_kv() -> None:
    """A step in flight may have chosen it: nobody has fed it. The next turn does."""
    plain = Desk(HashRunner(4096, 64), costs=PAYING)
    works = [Generate("s", "t", [first, 4], max_tokens=90) for first in range(60)]
    ended = 0
    for index, work in enumerate(works):
        plain.run(
            Open(f"{index}"), Generate(f"{index}", f"{index}", work.tokens, max_tokens=90, use_drafts=False)
        )
        text = plain.tokens(f"{index}")
        if text[-1] == END and len(text) > 5:
            desk = Desk(Frugal(), costs=PAYING)
            work.prediction = [*text, *range(20)]
            desk.run(Open("s"), work)
            desk.run(Generate("s", "next", [1, 2], max_tokens=3))
            assert desk.tokens("t") == text
            desk.finished("next")
            ended += 1
    assert ended


def test_accepted_tokens_are_counted() -> None:
    """Of a prediction that is right but for one token: what was drafted and said, and what was not said."""
    plain, decoding = (Desk(runner, costs=PAYING) for runner in (HashRunner(4096, 64), DecodingRunner()))
    plain.run(Open("s"), Generate("s", "t", [5, 4], max_tokens=40, use_drafts=False))
    text = plain.tokens("t")
    assert len(text) > 20
    wrong = [*text[:12], (text[12] + 1) % 60, *text[13:]]
    decoding.run(Open("s"), Generate("s", "t", [5, 4], max_tokens=40, prediction=wrong))
    said, asked = decoding.finished("t").waterfall, decoding.runner.asked  # type: ignore[attr-defined]
    assert decoding.tokens("t") == text
    assert said.draft_accepted == len(text) - 1 - len(
        asked
    )  # a pass says one token more; the first has no pass
    assert said.draft_accepted + said.draft_rejected == sum(tokens - 1 for tokens, _ in asked)
    assert said.draft_rejected > 0
