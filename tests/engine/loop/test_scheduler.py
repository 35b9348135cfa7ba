"""Who runs next: realtime first, a share for the rest, fair among tenants, together where that is faster."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.desk import CHUNK_TOKENS, Desk
from tests.engine.hashing import END, VOCAB, HashRunner, next_token
from tests.thorough import examples
from vivace.engine.runners.base import Logits
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Append, Failed, Finished, Generate, Interrupt, Open, Score, Tier, Tokens

APART = {1: 1.0, 64: 90.0, 128: 500.0}  # any two parts cost more in one pass than in two: none is shared
TOGETHER = {1: 10.0, 2: 11.0, 4: 14.0, 8: 30.0, 64: 90.0}
CONTENDED_TOKENS = 4  # what TOGETHER allows for one and a half steps
FAST = {1: 1.0, 64: 2.0, 512: 9.0}  # a machine that reads 512 tokens in less than a chunk may take


@pytest.fixture(autouse=True, scope="module")
def steady_costs() -> Iterator[None]:
    """Costs stay what a test says they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepCosts, "observe", lambda *_: None)
        yield


def endless(held: Sequence[int]) -> Logits:
    """The hashing runner's text, but its end token never comes."""
    token = next_token(held)
    return np.eye(VOCAB, dtype=np.float32)[token if token != END else 0] * 9


def make_desk(costs: dict[int, float] = APART, context_tokens: int = 8192, sequences: int = 64) -> Desk:
    return Desk(HashRunner(context_tokens, sequences, endless), costs=costs)


def talk(session: str, turn: str, tier: Tier = "realtime", tokens: Sequence[int] = (1,)) -> Generate:
    return Generate(session, turn, list(tokens), max_tokens=4000, tier=tier, use_drafts=False)


def steps(desk: Desk, count: int) -> None:
    for _ in range(count):
        desk.engine.step()


def speakers(desk: Desk) -> list[str]:
    """Whose token came, pass by pass."""
    return [frame.turn for frame in desk.sent if isinstance(frame, Tokens)]


def runner_of(desk: Desk) -> HashRunner:
    assert isinstance(desk.runner, HashRunner)
    return desk.runner


def test_a_realtime_turn_takes_the_next_pass() -> None:
    """Between any two passes of a background turn a realtime turn may begin."""
    desk = make_desk()
    desk.give(Open("slow"), Open("quick"), talk("slow", "b", "background"))
    steps(desk, 7)
    desk.give(talk("quick", "r"))
    steps(desk, 1)
    assert speakers(desk) == ["b"] * 7 + ["r"]


def test_background_gets_one_pass_in_twenty() -> None:
    """While a realtime turn runs, at least 5% of the passes are background's, spread evenly."""
    desk = make_desk()
    desk.give(Open("slow"), Open("quick"), talk("slow", "b", "background"), talk("quick", "r"))
    steps(desk, 400)
    spoke = speakers(desk)
    assert all(spoke[at : at + 20].count("b") == 1 for at in range(0, 400, 20))


def test_several_background_turns_share_the_twentieth_pass() -> None:
    """Each of three waiting background turns goes on while a realtime turn runs."""
    desk = make_desk()
    for name in "abc":
        desk.give(Open(name), talk(name, f"t{name}", "background"))
    desk.give(Open("quick"), talk("quick", "r"))
    steps(desk, 240)
    assert [len(desk.tokens(f"t{name}")) for name in "abc"] == [4, 4, 4]


def test_a_contended_background_pass_is_small() -> None:
    """While a realtime turn waits, a background prompt is read in pieces that cost about a step."""
    desk = make_desk(TOGETHER)
    desk.give(Open("slow"), Open("quick"), talk("quick", "r"))
    desk.give(talk("slow", "b", "background", [2] * 300))
    steps(desk, 200)
    passes = runner_of(desk).passes
    assert passes.count(CONTENDED_TOKENS) == 10
    assert max(passes) == CONTENDED_TOKENS
    desk.give(Interrupt("r"))
    steps(desk, 1)
    assert passes[-1] == CHUNK_TOKENS


def test_contended_scoring_is_done_in_small_passes() -> None:
    """Background candidates are scored in passes that a realtime turn hardly notices."""
    desk = make_desk(TOGETHER)
    desk.give(Open("slow", [1]), Open("quick"), talk("quick", "r"))
    desk.give(Score("slow", "c", [], [[token] * 3 for token in range(40)], tier="background"))
    steps(desk, 200)
    assert max(runner_of(desk).passes) <= CONTENDED_TOKENS


def test_a_realtime_turn_stops_a_long_background_pass() -> None:
    """What arrives inside of a long background pass does not wait for its end; nothing of it is lost."""
    desk = make_desk()
    desk.give(Open("slow"), Open("quick"), talk("slow", "b", "background", [2] * 200))
    arrival = talk("quick", "r")
    desk.engine.step(lambda: [arrival])
    assert runner_of(desk).passes == []
    desk.give(arrival)
    steps(desk, 1)
    assert speakers(desk) == ["r"]
    desk.give(Interrupt("r"))
    steps(desk, 4)
    assert speakers(desk) == ["r", "b"]
    assert runner_of(desk).passes == [1, 64, 64, 64, 8]


@pytest.mark.parametrize(
    "arrival",
    [
        talk("quick", "r", "background"),
        Append("quick", "r", [1], is_provisional=True),
        Interrupt("somebody else"),
        Open("new"),
    ],
)
def test_what_is_not_urgent_does_not_stop_a_background_pass(
    arrival: Generate | Append | Interrupt | Open,
) -> None:
    """Background work, typing and news about other turns wait until the pass is over."""
    desk = make_desk()
    desk.give(Open("slow"), Open("quick"), talk("slow", "b", "background", [2] * 200))
    desk.engine.step(lambda: [arrival])
    assert runner_of(desk).passes == [CHUNK_TOKENS]


def test_a_realtime_pass_is_not_stopped_by_another_realtime_turn() -> None:
    """Realtime turns do not take passes from each other."""
    desk = make_desk()
    desk.give(Open("a"), Open("b"), talk("a", "t", tokens=[2] * 200))
    desk.engine.step(lambda: [talk("b", "u")])
    assert runner_of(desk).passes == [CHUNK_TOKENS]


@settings(max_examples=examples(40))
@given(
    prompts=st.lists(
        st.lists(st.integers(1, 150), min_size=1, max_size=4), min_size=2, max_size=4
    ),  # a list of prompt lengths for each tenant
    count=st.integers(1, 300),
    tier=st.sampled_from(["realtime", "background"]),
)
def test_tenants_are_served_alike(prompts: list[list[int]], count: int, tier: Tier) -> None:
    """Always-busy tenants differ by one pass at most, however many turns each has."""
    desk = make_desk()
    for tenant, lengths in enumerate(prompts):
        for turn, length in enumerate(lengths):
            name = f"{tenant}.{turn}"
            desk.give(
                Open(name, [], f"tenant {tenant}"), talk(name, name, tier, [tenant * 10 + turn] * length)
            )
    steps(desk, count)
    owners, served = {}, dict.fromkeys(range(len(prompts)), 0)
    for span in (span for spans in runner_of(desk).spans for span in spans):
        if span.start == 0:
            owners[span.seq] = divmod(span.tokens[0], 10)
        tenant, turn = owners[span.seq]
        is_reading = span.start < prompts[tenant][turn]
        served[tenant] += is_reading * len(span.tokens) + 2 * span.want
    assert max(served.values()) - min(served.values()) <= CHUNK_TOKENS + 2


def test_a_tenant_that_was_idle_has_no_old_credit() -> None:
    """Whoever comes late starts level: it is served alike from then on, not alone until it has caught up."""
    desk = make_desk()
    desk.give(Open("a", [], "ann"), Open("b", [], "bob"), talk("a", "ta"))
    steps(desk, 100)
    desk.give(talk("b", "tb"))
    steps(desk, 100)
    assert len(desk.tokens("tb")) in (49, 50, 51)


def test_waiting_in_the_background_earns_no_realtime_credit() -> None:
    """A tenant whose background turn got little while another talked cannot shut the other one out."""
    desk = make_desk()
    desk.give(Open("a", [], "ann"), Open("b", [], "bob"), Open("work", [], "bob"))
    desk.give(talk("a", "ta"), talk("work", "tw", "background"))
    steps(desk, 400)
    before = len(desk.tokens("ta"))
    desk.give(talk("b", "tb"))
    steps(desk, 200)
    assert len(desk.tokens("ta")) - before >= 80
    assert len(desk.tokens("tb")) >= 80


def test_scoring_counts_as_service() -> None:
    """A tenant that scores candidates pays for their tokens: it gets no more passes than its share."""
    desk = make_desk()
    desk.give(Open("a", [1], "ann"), Open("b", [], "bob"))
    desk.give(Score("a", "c", [], [[token] * 101 for token in range(30)]), talk("b", "t"))
    steps(desk, 60)
    assert len(desk.tokens("t")) > 50


def test_many_turns_of_one_tenant_do_not_outrun_a_single_one() -> None:
    """Five turns of one tenant together get as much as the one turn of another."""
    desk = make_desk()
    desk.give(Open("single", [], "bob"), talk("single", "one"))
    for name in "abcde":
        desk.give(Open(name, [], "ann"), talk(name, f"t{name}"))
    steps(desk, 200)
    many = sum(len(desk.tokens(f"t{name}")) for name in "abcde")
    assert abs(many - len(desk.tokens("one"))) <= 5


@pytest.mark.parametrize("costs", [TOGETHER, FAST])
def test_two_realtime_decodes_share_a_pass(costs: dict[int, float]) -> None:
    """Where a pass over two tokens is cheaper than two passes, both turns speak in each pass."""
    desk = make_desk(costs)
    desk.give(Open("a"), Open("b"), talk("a", "t"), talk("b", "u", tokens=[2]))
    steps(desk, 10)
    assert [len(spans) for spans in runner_of(desk).spans] == [2] * 10
    assert len(desk.tokens("t")) == len(desk.tokens("u")) == 10


def test_two_decodes_go_one_by_one_where_that_is_faster() -> None:
    """Where a pass over two tokens costs more than two passes, none is shared."""
    desk = make_desk(APART)
    desk.give(Open("a"), Open("b"), talk("a", "t"), talk("b", "u", tokens=[2]))
    steps(desk, 10)
    assert [len(spans) for spans in runner_of(desk).spans] == [1] * 10
    assert len(desk.tokens("t")) == len(desk.tokens("u")) == 5


def test_tiers_do_not_share_a_pass() -> None:
    """A background turn does not make a realtime pass longer, cheap as it may be."""
    desk = make_desk(TOGETHER)
    desk.give(Open("a"), Open("b"), talk("a", "r"), talk("b", "b", "background", [2]))
    steps(desk, 60)
    assert [len(spans) for spans in runner_of(desk).spans] == [1] * 60


def test_a_shared_pass_keeps_to_what_a_runner_takes() -> None:
    """Eight prompts at once are read in passes of 512 tokens at most, all of them to their end."""
    desk = make_desk(FAST)
    for index in range(8):
        desk.give(Open(f"s{index}"))
    desk.run(*(Generate(f"s{index}", f"t{index}", [index] * 300, max_tokens=2) for index in range(8)))
    assert max(runner_of(desk).passes) <= 512
    assert all(len(desk.tokens(f"t{index}")) == 2 for index in range(8))


def test_a_turn_that_joins_a_pass_takes_no_seat_of_it() -> None:
    """With one sequence for all sessions, turns of both tiers still end, one after the other."""
    desk = make_desk(TOGETHER, sequences=17)
    for name, tenant in (("z", "ann"), ("w", "bob"), ("c", "cid"), ("b", "ann")):
        desk.give(Open(name, [], tenant))
    desk.give(Generate("z", "tz", [1] * 5, max_tokens=30, tier="background"))
    steps(desk, 10)
    desk.give(Generate("w", "tw", [2] * 5, max_tokens=30, tier="background"))
    desk.give(Generate("c", "tc", [3] * 5, max_tokens=3))
    steps(desk, 5)
    desk.run(Generate("b", "tb", [4] * 5, max_tokens=3), Generate("c", "td", [5], max_tokens=3))
    ends = [frame.turn for frame in desk.sent if isinstance(frame, Finished | Failed)]
    assert sorted(ends) == ["tb", "tc", "td", "tw", "tz"]
    assert all(desk.finished(turn).reason == "length" for turn in ends)


def test_a_realtime_turn_takes_room_from_a_background_turn() -> None:
    """KV that a background turn holds does not keep a second realtime turn waiting for the first."""
    desk = make_desk(context_tokens=400)
    desk.give(Open("work"), Open("a"), Open("b"), talk("work", "w", "background", [1] * 250))
    steps(desk, 5)
    desk.give(Generate("a", "ta", [2] * 10, max_tokens=100))
    steps(desk, 2)
    desk.give(Generate("b", "tb", [3] * 170, max_tokens=2))
    steps(desk, 10)
    assert desk.tokens("tb")


def test_a_turn_that_lost_its_room_goes_on_beside_its_twin() -> None:
    """Another session holds its whole log when it comes back: it still gets logits of its own."""
    for cells in range(100, 140):
        desk = make_desk(context_tokens=cells)
        desk.give(Open("a"), Open("b"), Open("large"))
        for name, count in (("a", 12), ("b", 3)):
            tokens = [7] * 50
            desk.give(Generate(name, name, tokens, max_tokens=25, tier="background", use_drafts=False))
            steps(desk, count)
        desk.give(Generate("large", "r", [8] * 40, max_tokens=50, use_drafts=False))
        steps(desk, 400)
        assert desk.engine.is_idle
        assert len(desk.tokens("a")) == 25
        assert desk.tokens("a") == desk.tokens("b")


def test_scoring_that_found_no_room_goes_on_when_there_is_some() -> None:
    """Candidates that wait for room are scored when an older turn is over."""
    desk = make_desk(context_tokens=100, sequences=18)
    desk.give(Open("old"), Open("young"))
    desk.give(Generate("old", "t", [1] * 60, max_tokens=30, use_drafts=False))
    steps(desk, 3)
    desk.give(Score("young", "c", [2] * 35, [[3, 4, 5], [6, 7], [8, 9, 10]]))
    steps(desk, 100)
    assert desk.finished("t").reason == "length"
    assert desk.finished("c").reason == "scored"
