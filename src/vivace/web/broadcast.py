"""What happens in one conversation or edit, told to every face that has it open.

Owns the numbers of events, and the last ones, for a face that was away for a moment. A presenter of the
agent's: it is called for every token, so it only puts things into outboxes. Does not own the conversation
(`live_conversation`) nor when something is sent (`outbox`).
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Protocol

from vivace.agent.conversation.transcript.recording import records_of
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.edits.write.live_diff import LiveDiff as AgentDiff
from vivace.agent.events.edit import DiffGrew, EditStarted, UnitLocated
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import (
    FacesChanged,
    ModelChanged,
    ModelProgress,
    OptionsChanged,
    PromptWarmed,
    Renamed,
)
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.events.turn import TurnEnded, TurnStarted
from vivace.agent.loop.calls import Approval
from vivace.web.messages.events import AnyEvent, AnyTransient, EventFrame, LiveDiff, LiveWarm
from vivace.web.questions import Questions

KEPT_EVENTS = 20_000  # for faces that come back


class Listener(Protocol):
    def hear(self, frame: EventFrame) -> None:
        """Take a frame, to be sent soon. Return at once."""


class Broadcast:
    def __init__(self) -> None:
        self.conversation, self.edit = "", ""  # which of both it is, and its id
        self.epoch = secrets.token_hex(6)
        self.seq = 0
        self.on_change: Callable[[], None] = lambda: None  # what every face shows of it is another
        self.progress = ""  # in words, while something waits for its model to be loaded or to read
        self.listeners: dict[Listener, None] = {}
        self.questions = Questions(self.tell)
        self._kept: deque[EventFrame] = deque(maxlen=KEPT_EVENTS)
        self._unit = LiveDiff(path="", unit="", first_line=1, last_line=0, delta="")  # that is written now
        self._written: list[str] = []  # of it, so far
        self._diff: AgentDiff | None = None
        self._waiting: list[asyncio.Future[int]] = []  # for the next turn

    # ---- the agent's presenter ------------------------------------------------------------------------

    def show(self, event: AgentEvent) -> None:
        match event:
            case DiffGrew():
                self._grow(event)
            case PromptWarmed(warm_tokens=warm, prompt_tokens=prompt):
                self.tell(LiveWarm(warm_tokens=warm, prompt_tokens=prompt))
            case ModelProgress():
                self.progress = event.in_words
                self.on_change()
            case OptionsChanged() | ModelChanged() | Renamed() | FacesChanged():
                for record in records_of(event):
                    self.tell(record)
                self.on_change()
            case _:
                self._note_place(event)
                for record in records_of(event):
                    self.tell(record)

    async def decide(self, proposal: Proposal) -> Decision:
        return await self.questions.decide(proposal)

    async def resolve(self, conflict: Conflict) -> Resolution:
        return await self.questions.resolve(conflict)

    async def approve(self, asked: ApprovalAsked) -> Approval:
        return await self.questions.approve(asked)

    # ---- faces ----------------------------------------------------------------------------------------

    def tell(self, event: AnyEvent) -> None:
        """Tell an event to every face."""
        self.seq += 1
        frame = EventFrame(event=event, seq=self.seq, conversation=self.conversation, edit=self.edit)
        self._kept.append(frame)
        for listener in list(self.listeners):
            listener.hear(frame)

    def since(self, epoch: str, seq: int) -> list[EventFrame] | None:
        """Return what happened after this number; None if it is not known any more."""
        is_known = epoch == self.epoch and seq <= self.seq
        oldest = self._kept[0].seq if self._kept else self.seq + 1
        if not is_known or seq < oldest - 1:
            return None
        return [frame for frame in self._kept if frame.seq > seq]

    def begin_again(self) -> None:
        """Count anew: what was told before is no longer known."""
        self.epoch = secrets.token_hex(6)
        self._kept.clear()
        self._diff = None

    def next_turn(self) -> "asyncio.Future[int]":
        """Return a future that is the number of the next turn when it has begun."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    @property
    def standing(self) -> list[AnyTransient]:
        """Return what a face that comes now must know, beside the transcript."""
        open_questions = self.questions.standing
        if self._diff is None:
            return [*open_questions]
        unit = self._unit
        written = LiveDiff(
            path=unit.path,
            unit=unit.unit,
            first_line=unit.first_line,
            last_line=unit.last_line,
            delta="".join(self._written),
            is_first=True,
        )
        return [written, *open_questions]

    def _grow(self, event: DiffGrew) -> None:
        is_first = event.diff is not self._diff
        if is_first:
            self._diff, self._written = event.diff, []
        delta = event.opening + event.delta if is_first else event.delta
        self._written.append(delta)
        unit = self._unit
        self.tell(
            LiveDiff(
                path=unit.path,
                unit=unit.unit,
                first_line=unit.first_line,
                last_line=unit.last_line,
                delta=delta,
                is_first=is_first,
            )
        )

    def _note_place(self, event: AgentEvent) -> None:
        """Remember which unit is written next, or that none is."""
        match event:
            case UnitLocated(source=source, unit=unit):
                self._diff = None
                self._unit = LiveDiff(
                    path=str(source.path),
                    unit=unit.qualified_name,
                    first_line=unit.first_line,
                    last_line=unit.last_line,
                    delta="",
                )
            case EditStarted() | TurnEnded():
                self._diff = None
            case TurnStarted(turn=turn):
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    if not each.done():
                        each.set_result(turn)
