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
from vivace.agent.conversation.transcript.records import SCHEMA, Error
from vivace.agent.loop.calls import Calls, Desk
from vivace.agent.loop.steps import EndReason, MemoryRead, Steered, TaskEnded, TaskStarted, TurnBegan
from vivace.agent.loop.turn import ModelTurn
from vivace.agent.prompting import read_prompt, user
from vivace.client.turn import Turn
from vivace.errors import (
    APPROVAL_NEEDED,
    DONE,
    FAILED,
    INTERRUPTED,
    LIMIT_REACHED,
    ContextOverflow,
    RequestRefused,
    ServerGone,
    VivaceError,
)

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


class Task:
    def __init__(self, id: str, connection: Connection, model: str, desk: Desk, limits: TaskLimits) -> None:
        self.id = id
        self._connection = connection
        self._model = model
        self._desk = desk
        self._limits = limits
        self._began_s = time.monotonic()
        self._turns = 0
        self._tokens = 0
        self._faults = 0  # in a row
        self._text = ""  # the model's last words
        self._turn: Turn | None = None
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
        self._desk.presenter.show(self._started())
        if (used := self._desk.recalled.used()).in_words:
            names = tuple(file.shown for file in used.files)
            self._desk.presenter.show(MemoryRead(files=names, notes=used.notes, problem=used.problem))
        error: VivaceError | None = None
        self._work = asyncio.create_task(self._loop())
        try:
            async with asyncio.timeout(self._limits.seconds):
                reason = await self._work
        except TimeoutError:
            reason = "time"
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            reason = "stopped"
        except VivaceError as problem:
            error = problem
            reason = "context" if problem.code == ContextOverflow.code else "failed"
        self._is_over = True
        ended = self._ended(reason, error)
        self._desk.presenter.show(ended)
        return ended

    async def _loop(self) -> EndReason:
        items: list[dict[str, Any]] = [*read_prompt("task"), user(self._opening_message())]
        previous = ""
        while True:
            if reason := self._limit_reached():
                return reason
            self._turns += 1
            self._desk.presenter.show(TurnBegan(turn=self._turns))
            turn, outputs = await self._take_turn(items, previous)
            self._tokens += turn.tokens
            previous, self._text = turn.response_id, turn.text or self._text
            fault = turn.fault
            self._faults = self._faults + 1 if fault or turn.calls.has_faults else 0
            if self._faults > MAX_FAULTS:
                return "malformed_calls"
            items = outputs + ([user(f"Error: {fault}")] if fault else [])
            items += [user(text) for text in turn.given_back + self._steers]
            self._steers = []
            if not items:
                return "completed"

    def _opening_message(self) -> str:
        """Return the task behind the rules of its folder and the notes that fit it."""
        recalled = self._desk.recalled
        return "\n\n".join(filter(None, [recalled.rules, recalled.reminder, self._desk.instruction]))

    def _limit_reached(self) -> EndReason | None:
        if self._turns >= self._limits.turns:
            return "turns"
        return "tokens" if self._tokens >= self._limits.tokens else None

    async def _take_turn(
        self, items: list[dict[str, Any]], previous: str
    ) -> tuple[ModelTurn, list[dict[str, Any]]]:
        """Ask the model and answer its calls. If the server goes away meanwhile, ask once more."""
        try:
            turn = await self._ask(items, previous)
        except ServerGone:
            await self._connection.renew()
            turn = await self._ask(items, previous)
        try:
            return turn, await turn.calls.answer()
        except BaseException:
            await turn.calls.abandon()
            raise

    async def _ask(self, items: list[dict[str, Any]], previous: str) -> ModelTurn:
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

    def _request(self, items: list[dict[str, Any]], previous: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "input": items,
            "tools": [tool.definition() for tool in self._desk.tools],
            "parallel_tool_calls": True,
            "max_output_tokens": self._limits.answer_tokens,
            "temperature": 0,
        }
        return body | {"previous_response_id": previous} if previous else body

    # ---- beginning and end ------------------------------------------------------------------------

    def _started(self) -> TaskStarted:
        context = self._desk.context
        return TaskStarted(
            schema=SCHEMA,
            id=self.id,
            folder=str(context.root),
            model=self._model,
            task=self._desk.instruction,
            access=context.policies[0].access,
            asking=context.policies[0].asking,
            has_sandbox=context.has_sandbox,
            at_s=time.time(),
        )

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
            seconds=round(time.monotonic() - self._began_s, 3),
            entries=tuple(self._desk.entries),
            refused=self._desk.refused,
            error=Error(code=error.code, message=error.message, hint=error.hint) if error else None,
        )
