"""What the writer's tests share: turns in a few outcomes, and the events that they are told as."""

from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.protocol.parts import name
from vivace.protocol.shapes.events import AnyEvent, Usage, Waterfall
from vivace.protocol.shapes.outcomes import (
    CallBegun,
    CallDelta,
    CallDone,
    Ended,
    Outcome,
)
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter

SDK: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CALL: list[Outcome] = [CallBegun("look"), CallDelta('{"a":'), CallDelta("1}"), CallDone()]
PATCH: list[Outcome] = [CallBegun("patch", is_custom=True, namespace="files"), CallDelta("***"), CallDone()]
DOUBTFUL = CallBegun("look", is_sure=False)


def ended(reason: str, scores: list[float] | None = None) -> Ended:
    return Ended(reason, Usage(3, 2, 5), Waterfall(), scores)


def tell(*outcomes: Outcome, is_discarding: bool = False, **fields: Any) -> list[AnyEvent]:
    request = ResponseCreate(**{"input": "hi"} | fields)
    writer = ResponseWriter(request, "resp_1", "m", is_discarding=is_discarding)
    events = writer.begin()
    for outcome in outcomes:
        events += writer.write(outcome)
    return events


def names(events: list[AnyEvent]) -> list[str]:
    return [name(event) for event in events]


def last(*outcomes: Outcome, **fields: Any) -> Any:
    return tell(*outcomes, **fields)[-1].response  # type: ignore[union-attr]
