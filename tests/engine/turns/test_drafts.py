"""Law 4: drafts never change the text. The same turns with and without, on runners that tell them apart."""

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.desk import Desk
from tests.engine.hashing import END, VOCAB, HashRunner, next_token
from tests.thorough import examples
from vivace.engine.output.compiler import Compiler
from vivace.engine.output.grammar import Grammars
from vivace.engine.runners.base import Logits
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Fork, Generate, Grammar, Open, Sampling, Tokens

PAYING = {1: 1.0, 16: 1.2, 64: 90.0}  # sixteen tokens cost hardly more than one: every chance is taken


@pytest.fixture(autouse=True, scope="module")
def steady_costs() -> Iterator[None]:
    """Costs stay what a test says they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepCosts, "observe", lambda *_: None)
        yield


@functools.cache
def _noise(pair: bytes) -> Logits:
    row = np.random.default_rng(zlib.crc32(pair)).normal(0, 3, VOCAB).astype(np.float32)
    row[END] -= 4
    return row


def repeating(held: Sequence[int]) -> Logits:
    """The last two tokens decide, so that the text soon repeats itself; no two logits are alike."""
    return _noise(bytes([held[-2] % 3 if len(held) > 1 else 0, held[-1]]))


def hashing(held: Sequence[int]) -> Logits:
    """The whole KV decides: one wrong cell changes everything after it."""
    return _noise(zlib.crc32(bytes(held)).to_bytes(4, "big"))


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.8]),
    seed=st.integers(0, 2**64 - 1),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([0, 5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    top_logprobs=st.sampled_from([None, 2]),
)


class Pair:
    """One turn on two desks of its own: drafts off, drafts on."""

    def __init__(
        self,
        logits: Callable[[Sequence[int]], Logits] | None,
        tokens: list[int],
        compiler: Compiler | None = None,
    ) -> None:
        self.logits, self.prompt, self.compiler = logits, tokens, compiler

    def run(self, **wishes: object) -> Desk:
        desk = Desk(HashRunner(logits=self.logits), costs=PAYING)
        if self.compiler:
            desk.engine._compiler = self.compiler  # one process that checks grammars, for a hundred desks
        desk.run(Open("s"), Generate("s", "t", list(self.prompt), **wishes))  # type: ignore[arg-type]
        return desk

    def compare(self, prediction: list[int], **wishes: object) -> tuple[Desk, Desk]:
        off = self.run(**wishes, use_drafts=False)
        on = self.run(**wishes, prediction=prediction)
        assert on.tokens("t") == off.tokens("t")
        assert on.finished("t").reason == off.finished("t").reason
        assert logprobs(on) == logprobs(off)
        return off, on


def logprobs(desk: Desk) -> list[object]:
    return [each for f in desk.sent if isinstance(f, Tokens) for each in f.logprobs]


def mutate(tokens: list[int], places: list[tuple[int, int, str]]) -> list[int]:
    """The prediction as an edit would leave it: tokens replaced, left out, put in."""
    tokens = list(tokens)
    for place, token, how in places:
        at = place % (len(tokens) + 1)
        tokens[at : at + (how != "insert")] = [] if how == "delete" else [token]
    return tokens


EDITS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 60), st.sampled_from(["replace", "delete", "insert"])),
    max_size=4,
)
PROMPTS = st.lists(st.integers(0, 60), min_size=1, max_size=80)


def text(tokens: Sequence[int]) -> str:
    return "".join(chr(token + 32) for token in tokens)


@pytest.mark.parametrize("logits", [repeating, hashing, None])
@pytest.mark.parametrize("source", ["exact", "mutated", "unrelated", "none"])
def test_tokens_are_the_same_with_and_without_drafts(
    logits: Callable[[Sequence[int]], Logits] | None, source: str
) -> None:
    """Any prompt, sampling, prediction, limit and stop string: the same tokens, reason and chances."""
    accepted = rejected = 0

    @settings(max_examples=examples(60))
    @given(
        tokens=PROMPTS,
        sampling=SAMPLINGS,
        edits=EDITS,
        other=PROMPTS,
        limit=st.integers(1, 60),
        stop_at=st.none() | st.integers(0, 59),
    )
    @example([5, 1], Sampling(), [], [9, 8, 7, 6, 5], 60, None)  # drafts hold or fail, whatever else is tried
    def check(
        tokens: list[int],
        sampling: Sampling,
        edits: list[tuple[int, int, str]],
        other: list[int],
        limit: int,
        stop_at: int | None,
    ) -> None:
        nonlocal accepted, rejected
        pair = Pair(logits, tokens)
        longer = pair.run(sampling=sampling, max_tokens=limit + 20, use_drafts=False).tokens("t")
        prediction = {"exact": longer, "mutated": mutate(longer, edits), "unrelated": other, "none": []}
        stop = [text(longer[stop_at : stop_at + 2])] if stop_at is not None and stop_at < len(longer) else []
        _, on = pair.compare(prediction[source], sampling=sampling, max_tokens=limit, stop=stop)
        assert_books_balance(on, tokens)
        accepted += on.finished("t").waterfall.draft_accepted
        rejected += on.finished("t").waterfall.draft_rejected

    check()
    if source == "exact" or (logits is repeating and source != "unrelated"):
        assert accepted > (50 if source == "exact" else 0)  # or this would have shown nothing
    if source == "unrelated":
        assert rejected > 0


def assert_books_balance(desk: Desk, tokens: list[int]) -> None:
    """What was said, drafted and kept adds up, and the KV is the log."""
    runner, waterfall = desk.runner, desk.finished("t").waterfall
    assert isinstance(runner, HashRunner)
    said = desk.tokens("t")
    spoke = sum(isinstance(f, Tokens) for f in desk.sent)
    ended_in_draft = waterfall.draft_accepted + spoke - waterfall.output_tokens
    assert waterfall.output_tokens == len(said)
    assert ended_in_draft in (0, 1)  # the pass that ends inside of a draft adds no token of its own
    drafted = sum(span.want - 1 for spans in runner.spans for span in spans if span.want)
    assert waterfall.draft_accepted + waterfall.draft_rejected == drafted
    assert waterfall.steps == len(runner.passes)
    (held,) = [[cell.token for cell in cells] for cells in runner.kv.values() if cells]
    log = tokens + said
    assert held == log[: len(log) - 1 + ended_in_draft]


def test_a_stop_string_inside_an_accepted_draft_ends_the_turn_there() -> None:
    """The rest of the draft is neither said nor kept."""
    pair = Pair(repeating, [3, 1, 4])
    whole = pair.run(max_tokens=30, use_drafts=False).tokens("t")
    assert END not in whole
    off, on = pair.compare(whole, max_tokens=30, stop=[text(whole[7:9])])
    assert on.finished("t").reason == "stop"
    assert on.finished("t").waterfall.steps < off.finished("t").waterfall.steps
    assert_books_balance(on, [3, 1, 4])
    on.run(Generate("s", "u", [9], max_tokens=5))
    off.run(Generate("s", "u", [9], max_tokens=5))
    assert on.tokens("u") == off.tokens("u")


def test_the_token_limit_inside_a_draft_is_kept() -> None:
    """With a prediction of any length, no more than max_tokens are said."""
    pair = Pair(repeating, [3, 1, 4])
    whole = pair.run(max_tokens=30, use_drafts=False).tokens("t")
    for limit in range(1, 20):
        _, on = pair.compare(whole, max_tokens=limit)
        assert on.tokens("t") == whole[:limit]
        assert_books_balance(on, [3, 1, 4])


def test_a_draft_does_not_reach_beyond_the_context() -> None:
    """A turn that fills the context says as much with drafts as without."""
    tokens = [3, 1, 4] * 10
    said = []
    for wishes in ({"use_drafts": False}, {"prediction": list(range(60))}, {}):
        desk = Desk(HashRunner(context_tokens=64, logits=repeating), costs=PAYING)
        desk.run(Open("s"), Generate("s", "t", list(tokens), max_tokens=99, **wishes))  # type: ignore[arg-type]
        said.append((desk.tokens("t"), desk.finished("t").reason))
    assert said[0] == said[1] == said[2]


def test_an_exact_prediction_takes_few_passes() -> None:
    """Forty predicted tokens are said in a fraction of forty passes."""
    truth = [next_token([7])]
    while len(truth) < 40:
        truth.append(next_token([7, *truth]))
    truth = truth[: truth.index(END)] if END in truth else truth
    _, on = Pair(None, [7]).compare(truth, max_tokens=len(truth))
    assert on.finished("t").waterfall.steps < len(truth) / 3


def sided(held: Sequence[int]) -> Logits:
    """Two alphabets: text that began in one of them never leaves it."""
    row = repeating(held).copy()
    row[:30] -= 99.0 * (held[-1] >= 30)
    row[30:] -= 99.0 * (held[-1] < 30)
    return row


def test_one_sessions_text_is_never_drafted_for_another() -> None:
    """Drafts come from the session's own log and prediction, also beside a session with another text."""
    runner = HashRunner(context_tokens=2000, logits=sided)
    desk = Desk(runner, costs={1: 1.0, 16: 1.2, 64: 1.5})
    low, high = [1, 2] * 8, [41, 42] * 8
    desk.give(Open("a", [], "ann"), Open("b", [], "bob"), Open("c", [], "ann"))
    for turn, (name, tokens) in enumerate([("a", low), ("b", high), ("c", high)] * 3):
        desk.run(Generate(name, f"first{turn}", list(tokens), max_tokens=30))
    desk.run(
        *(
            Generate(name, f"t{name}", tokens, max_tokens=60)
            for name, tokens in zip("abc", (low, high, high), strict=True)
        )
    )
    drafts = [span.tokens[-span.want :] for spans in runner.spans for span in spans if span.want > 1]
    assert len(drafts) > 20
    assert all(len({token < 30 for token in draft}) == 1 for draft in drafts)


def test_a_fork_drafts_from_what_it_took_along_only() -> None:
    """What the parent says after the fork is not in the fork's drafts."""
    runner = HashRunner(context_tokens=2000, logits=sided)
    desk = Desk(runner, costs=PAYING)
    desk.run(Open("s"), Generate("s", "t", [41, 42] * 10, max_tokens=30))
    desk.give(Fork("f", "s", 20))
    desk.run(Generate("s", "u", [1, 2] * 10, max_tokens=40))
    before = len(runner.spans)
    desk.run(Generate("f", "v", [], max_tokens=40))
    drafts = [span.tokens[-span.want :] for spans in runner.spans[before:] for span in spans if span.want > 1]
    assert drafts
    assert all(token >= 30 for draft in drafts for token in draft)


GRAMMARS = [
    Grammar("regex", "[A-F]+(!|[0-9]{3})"),
    Grammar("regex", "(ABC|ABD|12345678){2,9}"),
    Grammar("lark", 'start: ("A" | "B" start "C")'),
]


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.text)
def test_a_grammar_holds_with_and_without_drafts(grammar: Grammar) -> None:
    """Under a grammar drafts stay on, and the text is the same: what it allows, to its end."""
    accepted, compiler = 0, Compiler(Grammars(HashRunner()))

    @settings(max_examples=examples(40))
    @given(tokens=PROMPTS, sampling=SAMPLINGS, edits=EDITS, limit=st.integers(1, 40))
    def check(tokens: list[int], sampling: Sampling, edits: list[tuple[int, int, str]], limit: int) -> None:
        nonlocal accepted
        pair = Pair(hashing, tokens, compiler)
        truth = pair.run(grammar=grammar, sampling=sampling, max_tokens=40, use_drafts=False).tokens("t")
        _, on = pair.compare(mutate(truth, edits), grammar=grammar, sampling=sampling, max_tokens=limit)
        assert_books_balance(on, tokens)
        assert on.tokens("t") == truth[:limit]
        accepted += on.finished("t").waterfall.draft_accepted

    try:
        check()
    finally:
        compiler.close()
    assert accepted > 5
