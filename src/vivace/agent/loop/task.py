"""A task: the model is asked, its calls are answered, and so on until it calls nothing more.

Owns the loop, its limits, and how a steer and a stop reach it. A steer goes into the running response between
two of its tokens; while tools run it goes along with their outputs. Every task ends with one `TaskEnded`, and
its reason says honestly why. Does not own one turn (`turn`), its calls (`calls`), or the face
(`TaskPresenter`).
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from vivace.agent.conversation.connection import Connection
from vivace.agent.events.base import Failed
from vivace.agent.events.task import (
    EndReason,
    MemoryRead,
    ModelAnswered,
    Steered,
    TaskEnded,
    TaskResumed,
    TurnBegan,
)
from vivace.agent.loop.calls import Calls, Desk
from vivace.agent.loop.checkpoint import Checkpoint, Item, answer_items
from vivace.agent.loop.turn import ModelTurn
from vivace.agent.model import Tier
from vivace.agent.prompting import user
from vivace.client.turn import Turn
from vivace.errors import (
    APPROVAL_NEEDED,
    DONE,
    FAILED,
    INTERRUPTED,
    LIMIT_REACHED,
    TOO_MANY,
    ContextOverflow,
    ModelUnavailable,
    RequestRefused,
    ServerGone,
    StartError,
    VivaceError,
)

NOT_KNOWN = "previous_response_not_found"
MAX_FAULTS = 2  # of calls in a row that are answered; the next one ends the task
EXIT_CODES: dict[EndReason, int] = {
    "completed": DONE,
    "stopped": INTERRUPTED,
    "turns": LIMIT_REACHED,
    "tokens": LIMIT_REACHED,
    "time": LIMIT_REACHED,
    "context": LIMIT_REACHED,
    "malformed_calls": FAILED,
    "failed": FAILED,
}


@dataclass(frozen=True)
class TaskLimits:
    turns: int = 50
    tokens: int = 1_000_000  # read anew and written
    seconds: float = 3600.0
    answer_tokens: int = 4096  # of one response


@dataclass(frozen=True)
class Pace:
    """Who waits for the task: which tier it is served in, and how long it waits for a server."""

    tier: Tier
    delays_s: tuple[float, ...]  # before each further try of a turn whose server went away


INTERACTIVE = Pace("realtime", (0.0,))
UNATTENDED = Pace("background", (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0))


class Task:
    def __init__(
        self,
        id: str,
        connection: Connection,
        model: str,
        desk: Desk,
        limits: TaskLimits,
        checkpoint: Checkpoint,
        pace: Pace = INTERACTIVE,
    ) -> None:
        self.id = id
        self._connection = connection
        self._model = model
        self._desk = desk
        self._limits = limits
        self._pace = pace
        self._checkpoint = checkpoint
        self._began_s = time.monotonic() - checkpoint.seconds
        self._turns = checkpoint.turns
        self._tokens = checkpoint.tokens
        self._faults = checkpoint.faults  # in a row
        self._text = checkpoint.text  # the model's last words
        self._told: list[Item] = list(checkpoint.told)  # all that was said, for a server that has lost it
        self._turn: Turn | None = None
        self._taken: list[str] = []  # steers that the running response has accepted
        self._lost: list[str] = []  # those that a response took with it when its server went away
        self._steers: list[str] = []  # for the next request
        self._is_over = False
        self._work: asyncio.Task[EndReason] | None = None
        self._is_stopping = False

    # ---- from outside -----------------------------------------------------------------------------

    async def steer(self, text: str) -> bool:
        """Tell the model something while it works. Return False if the task is over."""
        if self._is_over:
            return False
        self._desk.presenter.show(Steered(text=text))
        if self._turn is not None and not self._turn.is_over:
            try:
                await self._turn.steer(text)
            except (RequestRefused, ServerGone):
                pass  # the response is over: it goes with the next request
            else:
                self._taken.append(text)
                return True
        self._steers.append(text)
        return True

    def stop(self) -> None:
        """End the task. What was written stays, and can be undone."""
        if self._work is not None and not self._is_over:
            self._is_stopping = True
            self._work.cancel()

    # ---- the loop ---------------------------------------------------------------------------------

    async def run(self) -> TaskEnded:
        """Work to the end, whatever it is."""
        self._show_beginning()
        error: VivaceError | None = None
        self._work = asyncio.create_task(self._loop())
        try:
            reason = await self._within_time(self._work)
        except asyncio.CancelledError:
            if not self._is_stopping:
                self._work.cancel()
                await asyncio.wait({self._work})
                raise
            reason = "stopped"
        except VivaceError as problem:
            error = problem
            reason = "context" if problem.code == ContextOverflow.code else "failed"
        self._is_over = True
        ended = self._ended(reason, error)
        self._desk.presenter.show(ended)
        return ended

    async def _within_time(self, work: "asyncio.Task[EndReason]") -> EndReason:
        """Wait for the work. Its time does not pass while a person is waited for."""
        while (left_s := self._limits.seconds - self._used_s) > 0:
            if (await asyncio.wait({work}, timeout=left_s))[0]:
                return work.result()
        work.cancel()
        await asyncio.wait({work})
        return "time"

    @property
    def _used_s(self) -> float:
        return time.monotonic() - self._began_s - self._desk.all_waited_s

    async def _loop(self) -> EndReason:
        at = self._checkpoint
        items, messages, previous = list(at.items), list(at.messages), at.previous
        while items or messages:
            if reason := self._limit_reached():
                return reason
            self._turns += 1
            self._desk.presenter.show(TurnBegan(turn=self._turns, messages=tuple(messages)))
            turn, items = await self._take_turn([*items, *map(user, messages)], previous)
            previous, self._text = turn.response_id, turn.text or self._text
            fault = turn.fault
            self._faults = self._faults + 1 if fault or turn.calls.has_faults else 0
            if self._faults > MAX_FAULTS:
                return "malformed_calls"
            messages = [fault_message(fault)] if fault else []
            messages += turn.given_back + self._steers
            self._steers = []
        return "completed"

    def _limit_reached(self) -> EndReason | None:
        if self._turns >= self._limits.turns:
            return "turns"
        return "tokens" if self._tokens >= self._limits.tokens else None

    async def _take_turn(self, items: list[Item], previous: str) -> tuple[ModelTurn, list[Item]]:
        """Ask the model and answer its calls. Return the outputs."""
        turn = await self._asked(items, previous)
        steers = self._lost + [text for text in self._taken if text not in turn.given_back]
        self._taken, self._lost = [], []
        answered = ModelAnswered(
            turn=self._turns,
            response_id=turn.response_id,
            text=turn.text,
            calls=tuple(turn.calls.made),
            steers=tuple(steers),
            fault=turn.fault,
            tokens=turn.tokens,
            log_tokens=turn.log_tokens,
        )
        self._tokens += turn.tokens
        self._told += [*items, *answer_items(answered)]
        try:
            self._desk.presenter.show(answered)
            return turn, await turn.calls.answer()
        except BaseException:
            await turn.calls.abandon()
            raise

    async def _asked(self, items: list[Item], previous: str) -> ModelTurn:
        """Ask the model, again if the server goes away meanwhile. Tell it everything if it has forgotten."""
        delays = list(self._pace.delays_s)
        while True:
            try:
                return await self._ask([*items, *map(user, self._lost)], previous)
            except VivaceError as error:
                self._lost += self._taken
                self._taken = []
                if previous and error.code == NOT_KNOWN:
                    items, previous = [*self._told, *items], ""
                    continue
                if not delays or not self._may_pass(error):
                    raise
            await asyncio.sleep(delays.pop(0))
            await self._connection.renew()

    def _may_pass(self, error: VivaceError) -> bool:
        """Return whether another try may go better. Nobody waits for a background task: it waits itself."""
        if isinstance(error, ServerGone) or self._pace.tier == "realtime":
            return isinstance(error, ServerGone)
        if isinstance(error, RequestRefused):
            return error.status >= 500 or error.status == TOO_MANY
        return isinstance(error, StartError) and not isinstance(error, ModelUnavailable)

    async def _ask(self, items: list[Item], previous: str) -> ModelTurn:
        """Return the model's turn, read to its end. Calls that only read may run already."""
        client = await self._connection.client()
        turn = ModelTurn(Calls(self._desk), self._desk.presenter)
        try:
            async with client.turn(self._request(items, previous), lane=self.id) as self._turn:
                await turn.read(self._turn)
        except BaseException:
            await turn.calls.abandon()
            raise
        finally:
            self._turn = None
        return turn

    def _request(self, items: list[Item], previous: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "input": items,
            "tools": [tool.definition() for tool in self._desk.tools],
            "parallel_tool_calls": True,
            "max_output_tokens": self._limits.answer_tokens,
            "temperature": 0,
        }
        if self._pace.tier == "background":
            body["service_tier"] = "flex"
        return body | {"previous_response_id": previous} if previous else body

    # ---- beginning and end ------------------------------------------------------------------------

    def _show_beginning(self) -> None:
        if self._turns:
            self._desk.presenter.show(TaskResumed(turns=self._turns, at_s=time.time()))
            return
        self._desk.presenter.show(self._desk.started(self.id, self._model))
        if (used := self._desk.recalled.used()).in_words:
            names = tuple(file.shown for file in used.files)
            self._desk.presenter.show(MemoryRead(files=names, notes=used.notes, problem=used.problem))

    def _ended(self, reason: EndReason, error: VivaceError | None) -> TaskEnded:
        code = error.exit_code if error and reason == "failed" else EXIT_CODES[reason]
        if code == DONE and self._desk.unapproved:
            code = APPROVAL_NEEDED
        return TaskEnded(
            reason=reason,
            exit_code=code,
            text=self._text,
            turns=self._turns,
            tokens=self._tokens,
            seconds=round(self._used_s, 3),
            entries=tuple(self._desk.entries),
            refused=self._desk.refused,
            error=Failed.of(error) if error else None,
        )


def fault_message(fault: str) -> str:
    """Return what the model is told of an answer that has no whole call."""
    return f"Failed: {fault}"
