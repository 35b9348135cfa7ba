"""One turn, told as events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.events import AnyEvent, Usage, Waterfall
from vivace.protocol.requests import ResponseCreate
from vivace.protocol.writer import Broken, Ended, Outcome, ResponseWriter, Text

USAGE = Usage(3, 2, 5)


def ended(reason: str, scores: list[float] | None = None) -> Ended:
    return Ended(reason, USAGE, Waterfall(), scores)


def tell(*outcomes: Outcome, generate: bool = True) -> list[AnyEvent]:
    writer = ResponseWriter(ResponseCreate(input="hi", generate=generate), "resp_1", "m")
    events = writer.begin()
    for outcome in outcomes:
        events += writer.take(outcome)
    return events


def names(events: list[AnyEvent]) -> list[str]:
    return [str(event.__struct_config__.tag).removeprefix("response.") for event in events]


def test_an_answer_is_told_in_the_order_of_the_api() -> None:
    """Created, the item, its part, deltas, and everything closed again in reverse."""
    assert names(tell(Text("a"), Text("b"), ended("stop"))) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


@pytest.mark.parametrize(
    ("end", "terminal", "status"),
    [
        (ended("stop"), "completed", "completed"),
        (ended("length"), "incomplete", "incomplete"),
        (ended("interrupted"), "incomplete", "incomplete"),
        (Broken("engine_died", "twice"), "failed", "failed"),
    ],
)
def test_every_end_has_its_event(end: Outcome, terminal: str, status: str) -> None:
    """The terminal event carries the whole response, with what was said so far."""
    last = tell(Text("a"), end)[-1]
    assert names([last]) == [terminal]
    assert last.response.status == status
    assert last.response.text == "a"


def test_an_empty_answer_is_an_answer() -> None:
    """A model that says nothing has still answered with a message."""
    last = tell(ended("stop"))[-1]
    assert [message.content[0].text for message in last.response.output] == [""]


def test_a_warm_up_has_no_output() -> None:
    """Prefill only: created and completed, and no item."""
    events = tell(ended("appended"), generate=False)
    assert names(events) == ["created", "in_progress", "completed"]


def test_scores_come_with_the_response() -> None:
    """Scored candidates are in the completed response."""
    assert tell(ended("scored", [-1.0, -2.0]), generate=False)[-1].response.scores == [-1.0, -2.0]


@given(st.lists(st.text(min_size=1)), st.sampled_from([ended("stop"), ended("length"), Broken("x", "y")]))
def test_any_turn_has_one_terminal_event_and_it_is_the_last(deltas: list[str], end: Outcome) -> None:
    """Numbers run without a gap, deltas add up to the text, one terminal event ends it."""
    events = tell(*map(Text, deltas), end)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].response.text == "".join(deltas)


def test_nothing_follows_the_end() -> None:
    """A second end is our own mistake, and is caught."""
    with pytest.raises(AssertionError):
        tell(ended("stop"), ended("stop"))
