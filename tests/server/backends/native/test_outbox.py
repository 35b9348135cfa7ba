"""Outcomes between a turn and its listener."""

import asyncio
from itertools import zip_longest
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.events import Usage, Waterfall
from vivace.protocol.shapes.outcomes import (
    CallBegun,
    CallDelta,
    CallDone,
    Ended,
    Outcome,
    ReasoningDelta,
    TextDelta,
)
from vivace.server.backends.native.outbox import Outbox

END = Ended("stop", Usage(0, 0, 0), Waterfall())
OUTCOMES = st.lists(
    st.one_of(
        st.builds(TextDelta, st.text(max_size=3), st.lists(st.integers(), max_size=2)),
        st.builds(ReasoningDelta, st.text(max_size=3)),
        st.builds(CallDelta, st.text(max_size=3)),
        st.just(CallBegun("f")),
        st.just(CallDone()),
    )
)


def joined(outcomes: list[Outcome]) -> list[Outcome]:
    """Neighbours of one kind as one."""
    found: list[Outcome] = []
    for outcome in outcomes:
        last = found[-1] if found else None
        match last, outcome:
            case TextDelta(), TextDelta():
                found[-1] = TextDelta(last.delta + outcome.delta, last.logprobs + outcome.logprobs)
            case (ReasoningDelta(), ReasoningDelta()) | (CallDelta(), CallDelta()):
                found[-1] = type(outcome)(last.delta + outcome.delta)  # type: ignore[arg-type, call-arg, union-attr]
            case _:
                found.append(outcome)
    return found


@given(OUTCOMES, st.lists(st.booleans(), max_size=40))
def test_nothing_is_lost_or_out_of_order(outcomes: list[Outcome], pauses: list[bool]) -> None:
    """However the listener and the turn take turns, all of it comes, in order; what waited comes as one."""

    async def play() -> list[Outcome]:
        outbox, heard = Outbox(), list[Outcome]()

        async def listen() -> None:
            async for outcome in outbox:
                heard.append(outcome)

        listener = asyncio.create_task(listen())
        for index, outcome in enumerate(outcomes):
            outbox.put(outcome)
            if index < len(pauses) and pauses[index]:
                await asyncio.sleep(0)
        outbox.put(END)
        await listener
        return heard

    heard = asyncio.run(play())
    assert joined(heard) == joined([*outcomes, END])
    if not any(pauses):
        assert heard == joined([*outcomes, END])


@given(OUTCOMES, st.lists(st.sampled_from(["hold", "tell", "take", "pause"]), max_size=40), st.randoms())
def test_a_taker_has_what_it_takes_and_the_listener_the_rest(
    outcomes: list[Outcome], steps: list[str], chance: Random
) -> None:
    """Held, told, taken at once or refused: each outcome goes to one of the two, in order."""

    async def play() -> list[Outcome]:
        outbox, heard = Outbox(), list[Outcome]()

        async def listen() -> None:
            async for outcome in outbox:
                heard.append(outcome)

        def take(outcome: Outcome) -> bool:
            is_taken = chance.random() < 0.7
            if is_taken:
                heard.append(outcome)
            return is_taken

        listener = asyncio.create_task(listen())
        for outcome, step in zip_longest(outcomes, steps[: len(outcomes)], fillvalue="take"):
            assert isinstance(outcome, Outcome)
            outbox.add(outcome)
            if step != "hold":
                outbox.deliver(take if step == "take" else None)
            if step == "pause":
                await asyncio.sleep(0)
        outbox.put(END)
        await listener
        return heard

    assert joined(asyncio.run(play())) == joined([*outcomes, END])


def test_a_taker_gets_what_was_held_as_one() -> None:
    """Text that was held together is one outcome, and nobody is woken for it."""
    outbox, taken = Outbox(), list[Outcome]()

    def take(outcome: Outcome) -> bool:
        taken.append(outcome)
        return True

    for text in ("a", "b"):
        outbox.add(TextDelta(text, [text]))
    outbox.deliver(take)
    outbox.deliver(take)
    assert taken == [TextDelta("ab", ["a", "b"])]


def test_what_a_turn_put_in_stays_its_own() -> None:
    """Joining changes no outcome that was put in."""
    first, outbox = TextDelta("a", [1]), Outbox()
    outbox.put(first)
    outbox.put(TextDelta("b", [2]))
    assert first == TextDelta("a", [1])
