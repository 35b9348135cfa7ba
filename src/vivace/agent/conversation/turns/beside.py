"""A question beside the conversation: answered on a fork of its KV, and not remembered by it.

Owns the events of that answer. The response is not stored and nothing goes on from it.
"""

import asyncio
from typing import Any

from vivace.agent.events.talk import SideEnded, SideGrew, SideStarted
from vivace.agent.events.turn import TurnStatus
from vivace.agent.presenter import Presenter
from vivace.client.responses import ResponsesClient
from vivace.protocol.shapes.events import OutputTextDelta, ResponseIncomplete


async def answer_beside(
    client: ResponsesClient, presenter: Presenter, request: dict[str, Any], *, question: str, lane: str
) -> str:
    """Show the answer as it comes, and return it. Cancelling ends it."""
    presenter.show(SideStarted(question))
    status: TurnStatus = "failed"
    said = []
    try:
        async with client.turn(request | {"store": False}, lane=lane) as turn:
            async for event in turn:
                if isinstance(event, OutputTextDelta):
                    said.append(event.delta)
                    presenter.show(SideGrew(event.delta))
                elif isinstance(event, ResponseIncomplete):
                    status = "cut"
        status = "cut" if status == "cut" else "completed"
    except asyncio.CancelledError:
        status = "stopped"
        raise
    finally:
        presenter.show(SideEnded(status))
    return "".join(said)
