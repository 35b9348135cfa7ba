"""One attached face, as the holder knows it: what it is sent, in order, as fast as it reads.

Owns its outbox. Does not own what is told to whom (`faces`), nor what comes from it (`holding`).
"""

import asyncio
import contextlib
from collections.abc import Callable

from vivace.agent.conversation.sharing.faces import Question
from vivace.agent.conversation.sharing.wire import forms, frames, from_holder
from vivace.agent.conversation.sharing.wire.event_codec import EventEncoder
from vivace.agent.edits.conflict import Conflict
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.every import AgentEvent

MAX_BEHIND_BYTES = 16 * 1024 * 1024  # that a face has not read yet; then it is dropped


class FaceLink:
    """One attached face: what it is sent, in order, as fast as it reads."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._writer = writer
        self._encoder = EventEncoder()
        self._outbox: list[bytes] = []
        self._behind_bytes = 0
        self._wake, self._drained = asyncio.Event(), asyncio.Event()
        self._later: list[Callable[[], None]] | None = []  # what happens while it joins
        self._sending = asyncio.create_task(self._send())
        self.commands: dict[int, asyncio.Task[None]] = {}
        self.pending = 0  # commands that run

    # ---- a link of `Faces` ------------------------------------------------------------------------

    def show(self, event: AgentEvent) -> None:
        self._do(lambda: self.show_now(event))

    def ask(self, question: Question) -> None:
        self._do(lambda: self.ask_now(question))

    def close_question(self, question: Question) -> None:
        self._do(lambda: self.put(from_holder.Closed(question=question.id)))

    def at_rest(self) -> None:
        self._do(self._forget)

    def _do(self, action: Callable[[], None]) -> None:
        if self._later is None:
            action()
        else:
            self._later.append(action)

    def show_now(self, event: AgentEvent) -> None:
        for message in self._encoder.messages(event):
            self.put(message)

    def ask_now(self, question: Question) -> None:
        known: list[forms.Message] = []
        about = question.about
        if isinstance(about, Proposal):
            asked = from_holder.Asked(question=question.id, proposal=self._encoder.proposal(about, known))
        elif isinstance(about, Conflict):
            asked = from_holder.Asked(question=question.id, conflict=self._encoder.conflict(about, known))
        else:
            asked = from_holder.Asked(question=question.id, call=about)
        for message in (*known, asked):
            self.put(message)

    def _forget(self) -> None:
        self._encoder.forget()
        self.put(from_holder.AtRest())

    def begin(self) -> None:
        """Send what has happened while the face joined, and from now on everything at once."""
        later, self._later = self._later or [], None
        for action in later:
            action()

    def forget_command(self, number: int, _: object) -> None:
        self.commands.pop(number, None)

    # ---- the socket -------------------------------------------------------------------------------

    def put(self, message: forms.Message) -> None:
        """Send this next. A face that is too far behind is dropped: it can attach again."""
        data = frames.frame(message)
        self._outbox.append(data)
        self._behind_bytes += len(data)
        self._drained.clear()
        self._wake.set()
        if self._behind_bytes > MAX_BEHIND_BYTES and len(self._outbox) > 1:
            self._writer.transport.abort()

    async def drained(self) -> None:
        """Return when the face was sent everything, or is gone."""
        if not self._sending.done():
            waiting = asyncio.create_task(self._drained.wait())
            await asyncio.wait({waiting, self._sending}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    async def _send(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                data, self._outbox = b"".join(self._outbox), []
                self._writer.write(data)
                await self._writer.drain()
                self._behind_bytes -= len(data)
                if not self._outbox:
                    self._drained.set()

    async def close(self) -> None:
        """End the connection. Commands that were begun go on."""
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
