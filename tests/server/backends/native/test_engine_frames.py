"""Which turn gets which of the engine's frames, when many come in one read."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.wire.frames import Failed, Finished, Tokens, Waterfall
from vivace.server.backends.native.engines.process import EngineProcess, TurnFrame

TURNS = ["a", "b", "c"]
FRAMES = st.one_of(
    st.builds(Tokens, st.sampled_from(TURNS), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
    st.builds(Finished, st.sampled_from(TURNS), st.just("stop"), st.just(Waterfall())),
    st.builds(Failed, st.sampled_from(TURNS), st.just("fault"), st.just("It broke.")),
)


async def given_to_turns(reads: list[list[TurnFrame]]) -> dict[str, list[TurnFrame]]:
    """What each turn is given."""
    process = EngineProcess()
    heard: dict[str, list[TurnFrame]] = {turn: [] for turn in TURNS}

    def handler(turn: str) -> None:
        process.attach(turn, lambda frame: heard[turn].append(frame) if frame else None)

    for turn in TURNS:
        handler(turn)
    for read in reads:
        process._receive_all([*read])
    process.ready.cancel()
    return heard


@given(st.lists(st.lists(FRAMES, max_size=12), max_size=4))
def test_each_turn_gets_its_tokens_in_order_and_then_its_end(reads: list[list[TurnFrame]]) -> None:
    """However they are mixed: all of a turn's tokens up to its end, then the end, then nothing."""
    sent = [frame for read in reads for frame in read]
    wanted = {turn: list[int | TurnFrame]() for turn in TURNS}
    for frame in sent:
        before = wanted[frame.turn]
        if before and not isinstance(before[-1], int):
            continue
        before.extend(frame.tokens if isinstance(frame, Tokens) else [frame])
    copies = [[Tokens(f.turn, [*f.tokens]) if isinstance(f, Tokens) else f for f in read] for read in reads]
    heard = asyncio.run(given_to_turns(copies))
    for turn in TURNS:
        found: list[int | TurnFrame] = []
        for frame in heard[turn]:
            found.extend(frame.tokens if isinstance(frame, Tokens) else [frame])
        assert found == wanted[turn]


def test_tokens_that_came_together_are_given_together() -> None:
    """Three passes of two turns in one read are one frame for each of them, so that each writes once."""
    reads: list[list[TurnFrame]] = [[Tokens(turn, [number]) for number in range(3) for turn in "ab"]]
    heard = asyncio.run(given_to_turns(reads))
    assert heard == {"a": [Tokens("a", [0, 1, 2])], "b": [Tokens("b", [0, 1, 2])], "c": []}
