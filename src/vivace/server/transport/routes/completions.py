"""`POST /v1/completions` and `POST /infill`: text between a prefix and a suffix, for editors.

Owns which words go with which of the two routes. Streaming, waiting and errors are those of chat completions
(`routes.chat`, `turn_stream`). Does not own the prompt (`conversation/infill_prompt.py`).
"""

import time
from collections.abc import AsyncIterator, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from vivace.protocol.completions.requests import CompletionRequest, parse_completion, parse_infill
from vivace.protocol.completions.writer import CompletionWriter
from vivace.protocol.shapes.outcomes import Outcome, TextDelta
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.backends.base import Turn
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.answers import json_response
from vivace.server.transport.parsing import parsed
from vivace.server.transport.routes.chat import BEAT_S, ChatFrames
from vivace.server.transport.sse import interrupted_when_gone, read_body
from vivace.server.transport.turn_stream import PATIENCE_S, Begin, TurnStream, drained
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import Admitted

NAMES = {"max_output_tokens": "max_tokens", "input": "prompt"}


class CompletionRoute:
    def __init__(self, begin: Begin, activity: Activity) -> None:
        self._begin = begin
        self._activity = activity

    async def create(self, request: Request) -> Response:
        """Answer in OpenAI's words."""
        asked, admitted, writer = await self._begun(request, parse_completion)
        if asked.create.stream:
            outcomes = admitted.turn.outcomes()
            frames = ChatFrames(writer)
            return TurnStream(
                admitted, outcomes, frames, self._activity, patience_s=PATIENCE_S, beat_s=BEAT_S
            )
        return await self._answer(request, admitted, writer, writer.completion)

    async def infill(self, request: Request) -> Response:
        """Answer in the words of llama.cpp's server."""
        asked, admitted, writer = await self._begun(request, parse_infill)
        whole = partial(writer.infill, asked.fields)
        return await self._answer(request, admitted, writer, whole, asked.last_line_s)

    async def _begun(
        self, request: Request, parse: Callable[[bytes], CompletionRequest]
    ) -> tuple[CompletionRequest, Admitted, CompletionWriter]:
        self._activity.touch()
        try:
            asked = await parsed(parse, await read_body(request))
            admitted = await self._begin(asked.create, caller_of(request))
        except Refusal as refusal:
            refusal.param = NAMES.get(refusal.param or "", refusal.param)
            raise
        turn = admitted.turn
        return asked, admitted, CompletionWriter(turn.id, turn.model, has_usage_chunk=asked.has_usage_chunk)

    async def _answer(
        self,
        request: Request,
        admitted: Admitted,
        writer: CompletionWriter,
        whole: Callable[[], object],
        last_line_s: float | None = None,
    ) -> Response:
        turn = admitted.turn
        outcomes = turn.outcomes() if last_line_s is None else up_to_a_line(turn, last_line_s)
        with self._activity.answering():
            async with interrupted_when_gone(turn, request.receive):
                refused = await drained(outcomes, writer, request.scope)
                return refused or json_response(whole(), headers=admitted.headers)


async def up_to_a_line(turn: Turn, limit_s: float) -> AsyncIterator[Outcome]:
    """Yield the outcomes of a turn, and end it with the first line that ends later than the limit allows.

    The time counts from the first text on.
    """
    first = None
    is_ended = False
    async for outcome in turn.outcomes():
        if isinstance(outcome, TextDelta):
            now = time.perf_counter()
            first = now if first is None else first
            end = outcome.delta.rfind("\n") + 1
            if is_ended:
                continue
            if end and now - first >= limit_s:
                is_ended = True
                turn.interrupt()
                outcome = TextDelta(outcome.delta[:end])
        yield outcome
