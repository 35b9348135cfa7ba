"""What waits for a face: joined where it is text that grows, in order, and never lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.events.talk import NoteAdded, SideGrew
from vivace.agent.events.turn import AnswerGrew, ReasoningGrew
from vivace.web.messages.events import AnyEvent, EventFrame, LiveDiff
from vivace.web.outbox import MAX_WAITING, Outbox, TooSlow


def growing(path: str, delta: str, *, is_first: bool) -> LiveDiff:
    return LiveDiff(path=path, unit="u", first_line=1, last_line=2, delta=delta, is_first=is_first)


text = st.text(max_size=3)
events = st.one_of(
    st.builds(AnswerGrew, text=text),
    st.builds(ReasoningGrew, text=text),
    st.builds(SideGrew, text=text),
    st.builds(NoteAdded, text=text),
    st.builds(growing, st.sampled_from(["a", "b"]), text, is_first=st.booleans()),
)


def shape(event: dict[str, object]) -> tuple[object, ...]:
    return event["type"], event.get("path")


@given(st.lists(st.tuples(st.sampled_from(["c1", "c2"]), events), max_size=40), st.sets(st.integers(0, 40)))
def test_nothing_is_lost_or_moved(told: list[tuple[str, AnyEvent]], taken_at: set[int]) -> None:
    """However the frames are taken, texts that were joined add up, and the last number stands for all."""

    outbox, heard = Outbox(), []
    for number, (conversation, event) in enumerate(told):
        outbox.put(EventFrame(event=event, seq=number + 1, conversation=conversation))
        if number in taken_at:
            heard += [json.loads(frame) for frame in outbox.taken()]
    heard += [json.loads(frame) for frame in outbox.taken()]
    numbers = [frame["seq"] for frame in heard]
    assert numbers == sorted(set(numbers))  # type: ignore[type-var]
    at = 0
    for frame in heard:
        upto = int(frame["seq"])  # type: ignore[call-overload]
        pieces = told[at:upto]
        at = upto
        assert {conversation for conversation, _ in pieces} == {frame["conversation"]}
        shown: dict[str, str] = frame["event"]  # type: ignore[assignment]
        said = "".join(each.delta if isinstance(each, LiveDiff) else each.text for _, each in pieces)  # type: ignore[union-attr]
        assert said == shown.get("text", shown.get("delta", ""))
        assert not any(isinstance(each, LiveDiff) and each.is_first for _, each in pieces[1:])
        assert len(pieces) == 1 or not isinstance(pieces[0][1], NoteAdded)
    assert at == len(told)


async def test_ten_thousand_tokens_are_one_frame() -> None:
    """A face that is not sent anything for a moment gets all of it at once."""
    outbox = Outbox()
    for number in range(10_000):
        outbox.put(EventFrame(event=AnswerGrew(text="x"), seq=number + 1, conversation="c"))
    (frame,) = await outbox.take()
    assert json.loads(frame)["event"]["text"] == "x" * 10_000


async def test_a_face_that_takes_nothing_is_given_up() -> None:
    """Too many frames that cannot be joined are too many."""
    outbox = Outbox()
    for number in range(MAX_WAITING):
        outbox.put(EventFrame(event=NoteAdded(text="n"), seq=number))
    with pytest.raises(TooSlow):
        outbox.put(EventFrame(event=NoteAdded(text="n"), seq=0))
