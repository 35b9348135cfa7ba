"""Any OpenAI-compatible URL as a backend: vLLM, SGLang, Ollama, llama.cpp, a hosted model, another Vivace.

Owns which upstream a model name means, and the tasks of its turns. An upstream keeps nothing for us, so
every request carries the whole conversation. A steer is an interrupt here: what was said is part of the
history that its successor sends. Does not own how one is asked (`client`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from vivace.errors import VivaceError
from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.refusal import Refusal, mistake, previous_not_found
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import NO_HOOKS, TurnHooks
from vivace.server.backends.upstream.client import UpstreamClient
from vivace.server.backends.upstream.dialects.items import conversation
from vivace.server.backends.upstream.dialects.tools import toolbox
from vivace.server.backends.upstream.request import UpstreamRequest
from vivace.server.backends.upstream.settings import Upstream
from vivace.server.backends.upstream.turn import UpstreamTurn
from vivace.server.caller import Caller

STOP_TURNS_S = 1.0

History = Callable[[str, Caller], Awaitable[list[InputItem] | None]]

log = logging.getLogger(__name__)


class UpstreamBackend:
    def __init__(
        self,
        upstreams: Sequence[Upstream],
        history: History,
        on_answered: Callable[[str, str], None] | None = None,
    ) -> None:
        """`on_answered` gets the upstream's name and how it ended, for each request that is over."""
        self._peers = {upstream.name: UpstreamClient(upstream) for upstream in upstreams}
        self._history = history
        self._on_answered = on_answered
        self._turns: dict[UpstreamTurn, asyncio.Task[None]] = {}
        self._is_closing = False
        for upstream in upstreams:
            if (upstream.key_env or upstream.api_key) and not (upstream.is_secure or upstream.is_loopback):
                log.warning("the key of upstream %s goes to %s unencrypted", upstream.name, upstream.host)

    def start(self) -> None:
        """Ask for the lists of models before anyone needs them."""
        self._refresh()

    def models(self) -> list[str]:
        """Return the models that are known now, under the names that always work: NAME/MODEL."""
        self._refresh()
        return [f"{name}/{model}" for name, peer in self._peers.items() for model in peer.models.names]

    def serves(self, model: str, caller: Caller) -> bool:
        self._refresh()
        found = self._find(model)
        return found is not None and (caller.is_owner or found[1] in found[0].models)

    async def discover(self) -> None:
        """Wait until all lists of models are there or cannot be had, before a name is refused."""
        if tasks := [task for peer in self._peers.values() if (task := peer.models.refresh())]:
            await asyncio.wait(tasks)

    def begin(
        self, request: ResponseCreate, response_id: str, caller: Caller, hooks: TurnHooks = NO_HOOKS
    ) -> UpstreamTurn:
        """Accept a request, or raise why not. The turn then runs by itself until it is over."""
        if self._is_closing:
            raise Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503)
        found = self._find(request.model or "")
        if found is None:
            raise Refusal(
                f"No upstream has a model {request.model!r}.",
                f"Ask for NAME/MODEL, where NAME is one of: {', '.join(self._peers)}.",
                code="model_not_found",
                status=404,
                param="model",
            )
        peer, model = found
        if request.infill:
            raise Refusal(
                f"Upstream {peer.upstream.name} is not asked for completions.",
                "Ask a model of this machine.",
                code="unsupported_parameter",
                param="model",
            )
        if request.candidates:
            raise Refusal(
                f"Upstream {peer.upstream.name} cannot score candidates.",
                "Ask a model of this machine.",
                code="unsupported_parameter",
                param="candidates",
            )
        turn = UpstreamTurn(response_id, request, request.model or "", caller, hooks)
        self._turns[turn] = task = turn.run(self._drive(turn, peer, model))
        task.add_done_callback(lambda _: self._cleanup(turn, peer.upstream.name))
        return turn

    async def count_tokens(self, _: ResponseCreate) -> int | None:
        return None

    async def stop_turns(self) -> None:
        """Accept no more turns, and end those that run."""
        self._is_closing = True
        tasks = dict(self._turns)
        for turn, task in tasks.items():
            if turn.watch:
                turn.watch.aborting("shutdown")
            turn.interrupt()
            if not task.cancelling():  # it is over, and waits for the end of its connection
                task.cancel()  # only once: a second time would break off the closing
        if tasks:
            await asyncio.wait(tasks.values(), timeout=STOP_TURNS_S)

    async def close(self) -> None:
        await self.stop_turns()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TURNS_S):
                await asyncio.gather(*(peer.close() for peer in self._peers.values()))
                await asyncio.sleep(0)  # sockets are closed in the next step of the loop

    def _refresh(self) -> None:
        if not self._is_closing:
            for peer in self._peers.values():
                peer.refresh()

    def _find(self, model: str) -> tuple[UpstreamClient, str] | None:
        """Find NAME/MODEL always, and a bare name if an upstream lists it."""
        name, _, rest = model.partition("/")
        if rest and name in self._peers:
            return self._peers[name], rest
        for peer in self._peers.values():
            if model in peer.models:
                return peer, model
        return None

    def _cleanup(self, turn: UpstreamTurn, name: str) -> None:
        del self._turns[turn]
        if not turn.is_over:  # cancelled, but not by an interrupt
            turn.end("interrupted")
        if self._on_answered and turn.request.is_generating:
            self._on_answered(name, turn.how_it_ended)

    async def _drive(self, turn: UpstreamTurn, peer: UpstreamClient, model: str) -> None:
        """Run a turn from its acceptance to its end."""
        try:
            if not turn.request.is_generating:
                turn.end("appended")  # there is nothing to warm up there
                return
            question = await self._question(turn, peer, model)
            await peer.answer(turn, question)
        except VivaceError as error:
            turn.fail(error)
        except Exception:
            log.exception("%s failed", turn.id)
            turn.fail(mistake())

    async def _question(self, turn: UpstreamTurn, peer: UpstreamClient, model: str) -> UpstreamRequest:
        request, before = turn.request, list[InputItem]()
        if request.previous_response_id:
            known = await self._history(request.previous_response_id, turn.caller)
            if known is None:
                raise previous_not_found(request.previous_response_id)
            before = known
        items = [*before, *request.items]
        return UpstreamRequest(peer.upstream, model, request, conversation(items), toolbox(request, items))
