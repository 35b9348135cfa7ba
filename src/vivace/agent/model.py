"""The model as the agent sees it: score these continuations, or go on writing from here.

Owns the shape of the requests and the waterfalls of the turns. Does not own the connection (`client`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from vivace.agent.prompting import Message
from vivace.client.responses import ResponsesClient
from vivace.protocol.shapes.events import (
    OutputTextDelta,
    Response,
    ResponseCompleted,
    ResponseIncomplete,
    Waterfall,
)


class Model:
    def __init__(self, client: ResponsesClient, name: str) -> None:
        self._client = client
        self.name = name
        self.waterfalls: list[Waterfall] = []  # one a turn, in order
        self.was_cut = False  # whether the last turn ended at its token limit

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        """Return the log-probability of each candidate as the continuation of the begun answer."""
        body = self._body(messages) | {"generate": False, "candidates": candidates}
        response = await self._client.complete(body)
        self._keep(response)
        assert isinstance(response.scores, list)
        return response.scores

    async def prefill(self, messages: list[Message]) -> None:
        """Put a prompt into the KV for later ones that begin like it. Turns that are waited for go first."""
        await self._client.complete(self._body(messages) | {"generate": False, "service_tier": "flex"})

    async def write(
        self,
        messages: list[Message],
        *,
        max_tokens: int,
        stop: list[str] | None = None,
        prediction: str = "",
    ) -> AsyncGenerator[str]:
        """Yield the model's text as it comes. A prediction changes the speed, not the text."""
        body = self._body(messages) | {"max_output_tokens": max_tokens, "stop": stop or []}
        if prediction:
            body["prediction"] = {"type": "content", "content": prediction}
        async with aclosing(self._client.stream(body)) as events:  # closing the generator ends the turn
            async for event in events:
                match event:
                    case OutputTextDelta(delta=delta):
                        yield delta
                    case ResponseCompleted(response=response) | ResponseIncomplete(response=response):
                        self._keep(response)

    def _body(self, messages: list[Message]) -> dict[str, Any]:
        return {"model": self.name, "input": messages, "temperature": 0, "store": False}

    def _keep(self, response: Response) -> None:
        self.was_cut = response.incomplete_details is not None
        if response.vivace and response.vivace.waterfall:
            self.waterfalls.append(response.vivace.waterfall)
