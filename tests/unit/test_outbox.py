"""Outcomes between a turn and its listener."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.events import Usage, Waterfall
from vivace.protocol.outcomes import CallBegun, CallDone, CallText, Ended, Musing, Outcome, Text
from vivace.server.backends.outbox import Outbox

END = Ended("stop", Usage(0, 0, 0), Waterfall())
OUTCOMES = st.lists(
    st.one_of(
        st.builds(Text, st.text(max_size=3), st.lists(st.integers(), max_size=2)),
        st.builds(Musing, st.text(max_size=3)),
        st.builds(CallText, st.text(max_size=3)),
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
            case Text(), Text():
                found[-1] = Text(last.delta + outcome.delta, last.logprobs + outcome.logprobs)
            case (Musing(), Musing()) | (CallText(), CallText()):
                found[-1] = type(outcome)(last.delta + outcome.delta)  # type: ignore[union-attr]
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


def test_what_a_turn_put_in_stays_its_own() -> None:
    """Joining changes no outcome that was put in."""
    first, outbox = Text("a", [1]), Outbox()
    outbox.put(first)
    outbox.put(Text("b", [2]))
    assert first == Text("a", [1])
