"""The model as the agent sees it: score these continuations, or go on writing from here.

Owns the shape of the requests and the waterfalls of the turns. Does not own the connection (`client`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from vivace.agent.prompting import Message
from vivace.client.responses import ResponsesClient
from vivace.protocol.shapes.events import (
    OutputTextDelta,
    Response,
    ResponseCompleted,
    ResponseIncomplete,
    Waterfall,
)

Tier = Literal["realtime", "background"]  # background: nobody waits for it, and who waits goes first


@dataclass(frozen=True)
class WrittenToken:
    text: str
    nats: float  # its log-probability
    others: tuple[tuple[str, float], ...] = ()  # likely tokens that were not chosen, and theirs


@dataclass(frozen=True)
class Written:
    tokens: tuple[WrittenToken, ...]
    was_cut: bool  # it ended at its token limit

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)

    @property
    def nats(self) -> float:
        return sum(token.nats for token in self.tokens)


class Model:
    def __init__(self, client: ResponsesClient, name: str, tier: Tier = "realtime") -> None:
        self._client = client
        self.name = name
        self._tier = tier
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

    async def write_tokens(
        self,
        messages: list[Message],
        *,
        max_tokens: int,
        stop: list[str] | None = None,
        prediction: str = "",
        alternatives: int = 0,
        lane: str | None = None,
    ) -> Written:
        """Return a whole answer with the likelihood of each token. Turns of several lanes run at once."""
        body = self._body(messages) | {"max_output_tokens": max_tokens, "stop": stop or []}
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": alternatives}
        if prediction:
            body["prediction"] = {"type": "content", "content": prediction}
        tokens: list[WrittenToken] = []
        was_cut = False
        async with aclosing(self._client.stream(body, lane=lane)) as events:
            async for event in events:
                match event:
                    case OutputTextDelta(logprobs=logprobs):
                        tokens += map(_written_token, logprobs)
                    case ResponseCompleted(response=response) | ResponseIncomplete(response=response):
                        was_cut = response.incomplete_details is not None
                        self._keep_times(response)
        return Written(tuple(tokens), was_cut)

    def _body(self, messages: list[Message]) -> dict[str, Any]:
        body = {"model": self.name, "input": messages, "temperature": 0, "store": False}
        return body if self._tier == "realtime" else body | {"service_tier": "flex"}

    def _keep(self, response: Response) -> None:
        self.was_cut = response.incomplete_details is not None
        self._keep_times(response)

    def _keep_times(self, response: Response) -> None:
        if response.vivace and response.vivace.waterfall:
            self.waterfalls.append(response.vivace.waterfall)


def _written_token(logprobs: dict[str, Any]) -> WrittenToken:
    chosen = logprobs["token"]
    others = [(each["token"], each["logprob"]) for each in logprobs["top_logprobs"]]
    return WrittenToken(chosen, logprobs["logprob"], tuple(each for each in others if each[0] != chosen))
