"""The events of a response that is being made. The last one comes when the response is stored.

Owns nothing but the order. The WebSocket's machine has a writer of its own, because it adds events.
"""

from collections.abc import AsyncIterator

from vivace.protocol.shapes.events import AnyEvent, Terminal
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import Turn
from vivace.server.turns.service import TurnService


async def response_events(service: TurnService, turn: Turn) -> AsyncIterator[AnyEvent]:
    writer = ResponseWriter(turn.request, turn.id, turn.model)
    for event in writer.begin(turn.place):
        yield event
    async for outcome in turn.outcomes():
        for event in writer.write(outcome):
            yield await service.commit(turn, event) if isinstance(event, Terminal) else event
