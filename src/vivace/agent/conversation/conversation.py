"""A conversation about the code in one folder: what every face drives, and the transcript remembers.

Owns the order of things: one turn at a time, steered, stopped or followed by what was queued. What happens is
shown to the face's `Presenter`, after it was written down. Does not own the parts: answers (`answering`),
edits (`editing`), the state (`history`), the file (`transcript`), the server (`connection`).

    async with open_conversation(settings, folder, presenter) as talk:
        turn = await talk.send("What does @app.py do?")
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vivace.agent.conversation.answering import Answering, Ending
from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.history import History, Turn
from vivace.agent.conversation.mentions import mentions_in
from vivace.agent.conversation.messages import content_of, next_input, previous_response
from vivace.agent.conversation.queue import MessageQueue
from vivace.agent.conversation.recording import RecordingPresenter
from vivace.agent.conversation.records import ModelChosen
from vivace.agent.conversation.transcript import Transcript
from vivace.agent.events import (
    Abandoned,
    AgentEvent,
    Failed,
    IntentDecided,
    NoteAdded,
    TurnEnded,
    TurnStarted,
)
from vivace.agent.presenter import Presenter
from vivace.errors import ConversationBusy, RequestRefused, ServerGone, UsageError, VivaceError

MAX_ANSWER_TOKENS = 2048
NOT_KNOWN = "previous_response_not_found"


class Conversation:
    """Open one with `open_conversation` or `resume_conversation`. All methods belong to one event loop."""

    def __init__(
        self, history: History, transcript: Transcript, connection: Connection, face: Presenter
    ) -> None:
        self._history = history
        self._transcript = transcript
        self._connection = connection
        self._presenter = RecordingPresenter(face, transcript, history)
        self._work: asyncio.Task[Ending] | None = None  # the turn that runs
        self._answering: Answering | None = None
        self._steer = ""  # for a turn that is no answer yet, or an edit
        self._is_stopping = False
        self.queue = MessageQueue(history.queue, self._show)

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._history.id

    @property
    def folder(self) -> Path:
        return Path(self._history.folder)

    @property
    def model(self) -> str:
        return self._history.model

    @model.setter
    def model(self, name: str) -> None:
        """Let another model answer from the next turn on."""
        if name != self.model:
            self._presenter.write(ModelChosen(model=name))

    @property
    def turns(self) -> Sequence[Turn]:
        """Return the turns that stand, oldest first. The last may be running."""
        return self._history.turns

    @property
    def is_running(self) -> bool:
        return self._work is not None

    # ---- what the user does -----------------------------------------------------------------------

    async def send(self, text: str, mentions: Sequence[str] | None = None) -> Turn:
        """Run one turn to its end, then those that are queued. Return the last one.

        Without `mentions` they are found in the text. What goes wrong in a turn is shown as `Failed`, and the
        turn's status says so. A turn that was stopped or failed leaves the queue as it is.
        """
        if self.is_running:
            raise ConversationBusy("A turn runs already.", "Steer it, queue the message, or stop the turn.")
        turn = await self._run(text, mentions)
        while turn.status == "completed" and (message := self.queue.take()):
            turn = await self._run(message.text, message.mentions)
        return turn

    async def steer(self, text: str) -> None:
        """Turn the running turn around; its partial is kept. Too late for it, the text is queued first."""
        if self._work is None:
            self.queue.add(text, is_first=True)
        elif self._answering and self._answering.is_running:
            try:
                await self._answering.steer(text)
            except RequestRefused:
                self.queue.add(text, is_first=True)
        else:
            self._steer = "\n".join(filter(None, [self._steer, text]))
            self._work.cancel()

    def stop(self) -> None:
        """End the running turn and keep its partial. No effect if none runs."""
        if self._work is None:
            return
        self._is_stopping = True
        if self._answering and self._answering.is_running:
            self._answering.stop()
        else:
            self._work.cancel()

    def note(self, text: str) -> None:
        """Tell the model this in front of the next message."""
        self._show(NoteAdded(text))

    async def close(self) -> None:
        """Stop what runs and let go of the file and the server."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
        await self._connection.close()
        self._transcript.close()

    async def __aenter__(self) -> "Conversation":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- one turn ---------------------------------------------------------------------------------

    async def _run(self, text: str, mentions: Sequence[str] | None) -> Turn:
        if not text.strip():
            raise UsageError("The message is empty.", "Ask something, or say what to change.")
        found = tuple(mentions_in(text, self.folder) if mentions is None else mentions)
        number = self._history.all_turns[-1].number + 1 if self._history.all_turns else 1
        self._show(TurnStarted(number, text, found))
        turn = self._history.turns[-1]
        ending = Ending("failed")
        try:
            ending = await self._until_done(text, found)
        except VivaceError as error:
            self._show(Failed(error))
        except asyncio.CancelledError:
            ending = Ending("stopped", turn.response_id)
            if not self._is_stopping:
                raise
        finally:
            self._work, self._answering, self._is_stopping = None, None, False
            self._show(TurnEnded(number, ending.status, ending.response_id, ending.total_tokens))
            self._transcript.sync()
        return turn

    async def _until_done(self, text: str, mentions: tuple[str, ...]) -> Ending:
        """Do the turn's work; do it again when it is steered before it can be, or the server went away."""
        has_retried = False
        while True:
            self._work = asyncio.create_task(self._do(text, mentions))
            try:
                return await self._work
            except asyncio.CancelledError:
                if not self._steer or self._is_stopping:
                    raise
                text = f"{text}\n{self._steer}"
                self._abandon("steered", self._steer)
                self._steer = ""
            except ServerGone:
                if has_retried:
                    raise
                has_retried = True
                self._abandon("server_gone", "")
                await self._connection.renew()

    async def _do(self, text: str, mentions: tuple[str, ...]) -> Ending:
        self._show(IntentDecided("question", "words"))
        return await self._answer(text, mentions)

    async def _answer(self, text: str, mentions: tuple[str, ...]) -> Ending:
        content = content_of(text, mentions, self.folder)
        client = await self._connection.client()
        self._answering = Answering(client, self._presenter)
        try:
            return await self._answering.run(self._request(content), self.id)
        except RequestRefused as error:
            if error.code != NOT_KNOWN:
                raise
            return await self._answering.run(self._request(content, is_whole=True), self.id)

    def _request(self, content: str, *, is_whole: bool = False) -> dict[str, Any]:
        """Return the body of the next answer: what is new behind the last response."""
        previous = "" if is_whole else previous_response(self._history)
        body: dict[str, Any] = {
            "model": self.model,
            "input": next_input(self._history, content, is_whole=is_whole),
            "temperature": 0,
            "max_output_tokens": MAX_ANSWER_TOKENS,
        }
        return body | {"previous_response_id": previous} if previous else body

    def _abandon(self, why: Any, steer: str) -> None:
        attempts = self._history.turns[-1].attempts
        if attempts and not attempts[-1].is_abandoned:
            self._show(Abandoned(len(attempts[-1].text), why, steer))

    def _show(self, event: AgentEvent) -> None:
        self._presenter.show(event)
