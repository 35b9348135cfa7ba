"""One WebSocket to the server, as any client has it: create, say something in the middle, read to the end.

Owns the three ways to say something to an answer under way: `response.steer`, Codex's `response.interrupt`
and a create that goes on from there, and the whole conversation sent again. Does not own cases or checks.
"""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection

from vivace.errors import RequestRefused
from vivace.eval.steers.cases import Case, Form

Item = dict[str, Any]
SPARE_TOKENS = 40  # beyond the place of a steer, so that the answer is still under way when it comes
_DELTA = "response.output_text.delta"
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class Answer(msgspec.Struct, frozen=True):
    """A response that is over."""

    id: str
    text: str
    output: list[Item]
    total_tokens: int  # of its log
    cached_tokens: int
    reason: str  # why it is incomplete; "" if it is not


class Talk:
    """A conversation about one case."""

    def __init__(self, socket: ClientConnection, model: str, case: Case) -> None:
        self._socket = socket
        tokens = max(case.tokens, *(steer.after + SPARE_TOKENS for steer in case.steers))
        self._settings = {"model": model, "temperature": 0, "store": False, "max_output_tokens": tokens}
        self._items: list[Item] = []
        self.answers: list[Answer] = []
        self._response_id = ""  # of the answer under way
        self._created: Item | None = None  # the event that began it, if that was read already

    async def ask(self, text: str) -> None:
        """Begin the first answer."""
        self._items.append(_user(text))
        await self._create(input=self._items)

    async def interrupt(self, after: int, text: str, form: Form) -> None:
        """Say `text` after this many deltas of the answer, or after its end if it has fewer.

        The next answer begins then.
        """
        answer = await self._until_said(after)
        if answer is None and form == "steer":
            await self._send("response.steer", previous_response_id=self._response_id, input=text)
            answer = await self.finish()
            if answer.reason == "steered":
                return
            with contextlib.suppress(RequestRefused):  # it was over when the steer came
                self._created = await self._until_created()  # or it ended by itself just behind it
                return
        if answer is None:
            await self._send("response.interrupt", response_id=self._response_id)
            answer = await self.finish()
        if form != "resend":
            await self._create(previous_response_id=answer.id, input=text)
        else:
            self._items += [*answer.output, _user(text)]
            await self._create(input=self._items)

    async def finish(self) -> Answer:
        """Read the answer that is under way to its end."""
        return self._keep(await self._until(lambda event: event["type"] in _ENDS))

    def _keep(self, event: Item) -> Answer:
        self.answers.append(_answer(event["response"]))
        return self.answers[-1]

    async def _create(self, **fields: Any) -> None:
        await self._send("response.create", **self._settings, **fields)

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def _until_said(self, deltas: int) -> Answer | None:
        """Read this many deltas. Return the answer if it ended before."""
        created, self._created = self._created or await self._until_created(), None
        self._response_id = str(created["response"]["id"])
        for _ in range(deltas):
            event = await self._until(lambda event: event["type"] in (_DELTA, *_ENDS))
            if event["type"] != _DELTA:
                return self._keep(event)
        return None

    async def _until_created(self) -> Item:
        return await self._until(lambda event: event["type"] == "response.created")

    async def _until(self, is_it: Callable[[Item], bool]) -> Item:
        while True:
            event: Item = json.loads(await self._socket.recv())
            if event["type"] in ("error", "response.failed", "response.steer.failed"):
                error = event.get("error") or event["response"]["error"]
                raise RequestRefused(error["message"], code=error.get("code") or "")
            if is_it(event):
                return event


def _user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def _answer(response: Item) -> Answer:
    texts = [part["text"] for item in response["output"] for part in item.get("content") or ()]
    usage = response["usage"]
    return Answer(
        id=response["id"],
        text="".join(texts),
        output=response["output"],
        total_tokens=usage["total_tokens"],
        cached_tokens=usage["input_tokens_details"]["cached_tokens"],
        reason=(response["incomplete_details"] or {}).get("reason", ""),
    )
