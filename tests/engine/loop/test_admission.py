"""What cannot be done is refused: once, in words, before any pass, and without harm to anybody else."""

import math
import time
from collections.abc import Iterator

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import endless
from vivace.engine.wire.frames import (
    Append,
    Close,
    Failed,
    Finished,
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
    Tokens,
)

NAN, INF = math.nan, math.inf
LOG = [1, 2, 3, 4, 5]
LIMIT = 2048  # cells


class Guarded:
    """A desk with an idle session, an empty one, a closed one, and a running turn that must not notice."""

    def __init__(self) -> None:
        self.desk = Desk(HashRunner(LIMIT, 64, endless))
        self.desk.run(Open("s"), Append("s", "log", list(LOG)))
        self.desk.give(Open("empty"), Open("closed"), Open("witness"), Close("closed"))
        self.desk.give(Generate("witness", "w", [9, 8, 7], max_tokens=30, use_drafts=False))
        for _ in range(3):
            self.desk.engine.step()
        self.before = len(self.desk.sent)

    def refuse(self, frame: ToEngine) -> Failed:
        """Hand it in: there must be one answer, at once, with no pass for it."""
        runner = self.desk.runner
        assert isinstance(runner, HashRunner)
        passes = len(runner.passes)
        self.desk.give(frame)
        (answer,) = self.desk.sent[self.before :]
        assert isinstance(answer, Failed)
        assert answer.turn == getattr(frame, "turn", "")
        assert answer.message.endswith(".")
        assert len(runner.passes) == passes
        return answer

    def check_harmless(self) -> None:
        """The witness says what it says alone, and the session what it would have said."""
        self.desk.run()
        assert self.desk.tokens("w") == alone([9, 8, 7], 30)
        self.desk.run(Generate("s", "after", [6], max_tokens=5))
        assert self.desk.tokens("after") == alone([*LOG, 6], 5)


def alone(log: list[int], count: int) -> list[int]:
    desk = Desk(HashRunner(LIMIT, 64, endless))
    desk.run(Open("s"), Generate("s", "t", list(log), max_tokens=count))
    return desk.tokens("t")


def sampled(**wishes: object) -> Generate:
    return Generate("s", "t", [6], sampling=Sampling(**wishes))  # type: ignore[arg-type]


BAD = {
    "max_tokens 0": (Generate("s", "t", [6], max_tokens=0), "max_tokens"),
    "max_tokens negative": (Generate("s", "t", [6], max_tokens=-5), "max_tokens"),
    "token too large": (Generate("s", "t", [6, 64]), "from 0 to 63"),
    "token negative": (Generate("s", "t", [-1]), "from 0 to 63"),
    "token enormous": (Generate("s", "t", [2**63]), "from 0 to 63"),
    "appended token": (Append("s", "t", [64]), "from 0 to 63"),
    "typed token": (Append("s", "t", [-2], is_provisional=True), "from 0 to 63"),
    "predicted token": (Generate("s", "t", [6], prediction=[1, 64]), "from 0 to 63"),
    "scored token": (Score("s", "t", [], [[1], [-1]]), "from 0 to 63"),
    "opened token": (Open("new", [64]), "from 0 to 63"),
    "unknown session": (Generate("nobody", "t", [6]), "no session nobody"),
    "unknown session to append to": (Append("nobody", "t", [6]), "no session nobody"),
    "unknown session to score": (Score("nobody", "t", [6], [[1]]), "no session nobody"),
    "unknown session to rewind": (Rewind("nobody", 0), "no session nobody"),
    "unknown session to fork": (Fork("f", "nobody", 0), "no session nobody"),
    "unknown session to park": (Park("nobody"), "no session nobody"),
    "unknown session to close": (Close("nobody"), "no session nobody"),
    "closed session": (Generate("closed", "t", [6]), "no session closed"),
    "closed session to close": (Close("closed"), "no session closed"),
    "open session": (Open("s", [1]), "open already"),
    "fork to an open session": (Fork("witness", "s", 2), "open already"),
    "busy session": (Generate("witness", "t", [6]), "a turn already"),
    "busy session to append to": (Append("witness", "t", [6]), "a turn already"),
    "busy session to type in": (Append("witness", "t", [6], is_provisional=True), "a turn already"),
    "busy session to park": (Park("witness"), "cannot be parked"),
    "empty session": (Generate("empty", "t"), "nothing to go on"),
    "empty session to score": (Score("empty", "t", [], [[1]]), "nothing to go on"),
    "too long": (Generate("s", "t", [6] * LIMIT), "2054 tokens"),
    "too long to append": (Append("s", "t", [6] * LIMIT), "2053 tokens"),
    "too long to type": (Append("s", "t", [6] * LIMIT, is_provisional=True), "2053 tokens"),
    "too long to score": (Score("s", "t", [6] * LIMIT, [[1]]), "2054 tokens"),
    "huge candidate": (Score("s", "t", [], [[1] * 5000]), "too long"),
    "candidate beyond the context": (Score("s", "t", [6] * 2000, [[1] * 200]), "too long"),
    "rewind beyond the end": (Rewind("s", 6), "cannot rewind to 6"),
    "rewind to a negative length": (Rewind("s", -1), "cannot rewind to -1"),
    "rewind of a busy session": (Rewind("witness", -1), "cannot rewind to -1"),
    "fork beyond the end": (Fork("f", "s", 6), "cannot fork at 6"),
    "fork at a negative length": (Fork("f", "s", -1), "cannot fork at -1"),
    "temperature nan": (sampled(temperature=NAN), "temperature"),
    "temperature infinite": (sampled(temperature=INF), "temperature"),
    "temperature negative": (sampled(temperature=-0.1), "temperature"),
    "top_p 0": (sampled(top_p=0.0), "top_p"),
    "top_p nan": (sampled(top_p=NAN), "top_p"),
    "top_k negative": (sampled(top_k=-1), "top_k"),
    "min_p nan": (sampled(min_p=NAN), "min_p"),
    "repetition_penalty 0": (sampled(repetition_penalty=0.0), "repetition_penalty"),
    "repetition_penalty nan": (sampled(repetition_penalty=NAN), "repetition_penalty"),
    "presence_penalty nan": (sampled(presence_penalty=NAN), "presence_penalty"),
    "frequency_penalty infinite": (sampled(frequency_penalty=INF), "frequency_penalty"),
    "bias nan": (sampled(logit_bias={1: NAN}), "logit_bias"),
    "bias of no token": (sampled(logit_bias={64: 1.0}), "logit_bias"),
    "too many log-probabilities": (sampled(top_logprobs=21), "top_logprobs"),
    "empty stop string": (Generate("s", "t", [6], stop=["a", ""]), "stop"),
    "a hundred thousand stop strings": (Generate("s", "t", [6], stop=["x"] * 100_000), "stop"),
    "a million stop tokens": (Generate("s", "t", [6], stop_tokens=[1] * 1_000_000), "stop_tokens"),
    "a million candidates": (Score("s", "t", [], [[1]] * 1_000_000), "candidates"),
}


@pytest.mark.parametrize(("frame", "words"), BAD.values(), ids=BAD)
def test_a_bad_request_is_refused_and_harms_nobody(frame: ToEngine, words: str) -> None:
    """Exactly one Failed that says why, no pass, and every other session goes on as if alone."""
    guarded = Guarded()
    answer = guarded.refuse(frame)
    assert words in answer.message
    guarded.check_harmless()


def test_a_turn_id_that_is_taken_is_refused() -> None:
    """The turn that has the id goes on, and ends by itself as ever."""
    guarded = Guarded()
    guarded.refuse(Generate("s", "w", [6]))
    guarded.check_harmless()


def test_no_candidates_have_no_scores() -> None:
    """An empty list is answered with an empty list, an empty candidate with certainty."""
    desk = Desk(HashRunner(LIMIT, 64, endless))
    desk.run(Open("s", list(LOG)), Score("s", "t", [], []))
    assert desk.finished("t").scores == []
    desk.run(Score("s", "u", [], [[], []]))
    assert desk.finished("u").scores == [0.0, 0.0]


def test_an_interrupt_of_nothing_is_not_answered() -> None:
    """An interrupt that came too late has lost a race, and is no mistake."""
    guarded = Guarded()
    guarded.desk.give(Interrupt("gone"), Interrupt("log"))
    assert len(guarded.desk.sent) == guarded.before
    guarded.check_harmless()


def test_candidates_that_fit_one_by_one_are_scored() -> None:
    """Candidates that do not fit into the context side by side are scored one after the other."""
    desk = Desk(HashRunner(100, 64, endless))
    candidates = [[token, 2, 3, 4, 5] for token in range(12)]
    desk.run(Open("s"), Score("s", "t", [1] * 70, candidates))
    together = desk.finished("t").scores
    for index, candidate in enumerate(candidates):
        desk.run(Score("s", f"one{index}", [], [candidate]))
        assert desk.finished(f"one{index}").scores == pytest.approx([together[index]])


GRAMMARS = {
    "no regex": Grammar("regex", "(a"),
    "no JSON": Grammar("json_schema", "{"),
    "no lark": Grammar("lark", "start: nothing"),
    "nested 60,000 deep": Grammar("json_schema", '{"items":' * 60_000 + "{}" + "}" * 60_000),
    "nested regex": Grammar("regex", "(" * 30_000 + "a" + ")" * 30_000),
    "an enormous repetition": Grammar("regex", "((a{1000}){1000}){1000}"),
}


@pytest.fixture(scope="module")
def constrained() -> Iterator[Desk]:
    desk = Desk(HashRunner(LIMIT, 64, endless))
    desk.run(Open("warm"), Generate("warm", "warm", [1], grammar=Grammar("regex", "A"), max_tokens=2))
    yield desk
    desk.engine.close()


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_a_bad_grammar_is_refused_within_a_second(constrained: Desk, grammar: Grammar) -> None:
    """The quickest of ten is counted: a machine that others use too may be slow once, not always."""
    spent_s = []
    for _ in range(10):
        desk, name = constrained, f"q{len(constrained.sent)}"
        desk.run(Open(name), Generate(name, name, [1], grammar=Grammar("regex", "A"), max_tokens=2))
        begun = time.perf_counter()
        desk.run(Generate(name, f"{name}+", [6, 6], grammar=grammar))
        spent_s.append(time.perf_counter() - begun)
        desk.run(Close(name))
        if spent_s[-1] < 1.0:
            break
    assert min(spent_s) < 1.0


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_a_bad_grammar_disturbs_nobody(constrained: Desk, grammar: Grammar) -> None:
    """The turn fails with the reason, its session is as before, and a running turn does not notice."""
    desk, name = constrained, f"s{len(constrained.sent)}"
    desk.give(Open(name, list(LOG)), Open(f"{name}w"))
    desk.give(Generate(f"{name}w", f"{name}w", [9, 8, 7], max_tokens=1500, use_drafts=False))
    desk.give(Generate(name, name, [6, 6], grammar=grammar))
    while not any(isinstance(frame, Failed | Finished) and frame.turn == name for frame in desk.sent):
        desk.engine.step()
    assert desk.failed(name).code == "invalid_request_error"
    spoke = [
        len(frame.tokens) for frame in desk.sent if isinstance(frame, Tokens) and frame.turn == f"{name}w"
    ]
    assert spoke  # others went on while it was looked at
    desk.run(Interrupt(f"{name}w"), Generate(name, f"{name}+", [6], max_tokens=5))
    assert desk.tokens(f"{name}+") == alone([*LOG, 6], 5)
    desk.run(Close(name), Close(f"{name}w"))


def test_a_pathological_pattern_is_no_trouble(constrained: Desk) -> None:
    """(a+)+b is compiled and obeyed like any other."""
    grammar = Grammar("regex", "(A+)+B")
    desk = constrained
    desk.run(Open("p", list(LOG)), Generate("p", "p", [], grammar=grammar, max_tokens=40))
    text = "".join(chr(token + 32) for token in desk.tokens("p"))
    assert set(text.rstrip("_")) <= set("AB")


def test_a_turn_can_be_interrupted_while_its_grammar_is_compiled(constrained: Desk) -> None:
    """The turn ends at once and once, whatever becomes of the grammar."""
    desk = constrained
    desk.give(Open("i", list(LOG)), Generate("i", "i", [6], grammar=GRAMMARS["an enormous repetition"]))
    desk.run(Interrupt("i"))
    assert desk.finished("i").reason == "interrupted"
    desk.run(Generate("i", "j", [7], max_tokens=4))
    assert desk.tokens("j") == alone([*LOG, 6, 7], 4)


def test_a_session_can_be_closed_while_a_grammar_is_compiled(constrained: Desk) -> None:
    """Nobody is left to fail."""
    desk = constrained
    desk.give(Open("k", list(LOG)), Generate("k", "k", [6], grammar=GRAMMARS["an enormous repetition"]))
    desk.run(Close("k"))
    assert desk.finished("k").reason == "interrupted"
    desk.run(Open("l", list(LOG)), Generate("l", "l", [6], grammar=Grammar("regex", "AB"), max_tokens=9))
    assert desk.tokens("l")[:2] == [ord("A") - 32, ord("B") - 32]
