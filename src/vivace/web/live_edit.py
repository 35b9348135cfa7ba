"""One edit of a file outside of a conversation, for the face that asked for it.

Owns its life: a steer begins it again with what was said added, a stop or the face's leaving ends it with
nothing written. With `apply: "face"` the accepted text goes to the face, which says when it is in place. Does
not own the edit (`agent.edits.flow`).
"""

import asyncio
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.edits.apply.files import OpenFiles
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.source import check_led_to
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.scope import checked_instruction
from vivace.agent.effort import DEFAULT_EFFORT
from vivace.agent.events.base import Failed
from vivace.agent.events.edit import DiffGrew, EditApplied, EditNotApplied
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import ModelProgress
from vivace.agent.events.turn import AttemptAbandoned
from vivace.agent.memory.opening import memory_for
from vivace.config import Settings
from vivace.errors import BadRequest, TurnFault, VivaceError, WriteProblem
from vivace.models.presence import with_model_present
from vivace.models.progress import InWords
from vivace.web.broadcast import Broadcast
from vivace.web.buffers import Buffers
from vivace.web.edit_prefill import scope_of
from vivace.web.messages import edit_requests
from vivace.web.messages.events import AcceptedFile, EditAccepted, EditEnded, LiveActivity

WRITTEN_S = 60.0  # for a face to put an accepted text in place


class EditBroadcast(Broadcast):
    """Tells the face, and notes how far the edit came."""

    chars = 0  # written by the model, since it was begun last
    ending = EditEnded(status="nothing_to_change")
    _activity = ""

    def say(self, activity: str) -> None:
        """Tell what the edit waits for, or "" when it waits for nothing, unless that is known."""
        if activity != self._activity:
            self._activity = activity
            self.tell(LiveActivity(activity=activity))

    def show(self, event: AgentEvent) -> None:
        match event:
            case ModelProgress(is_loading=is_loading):
                self.say(event.in_words if is_loading else "")  # reading takes no notification
                return
            case DiffGrew(delta=delta):
                self.chars += len(delta)
            case EditApplied():
                self.ending = EditEnded(status="applied")
            case EditNotApplied(reason="rejected"):
                self.ending = EditEnded(status="rejected")
        super().show(event)


class LiveEdit:
    def __init__(
        self,
        settings: Settings,
        buffers: Buffers,
        folder: Path,
        place: Path,
        request: edit_requests.EditStart,
    ) -> None:
        self._settings, self._buffers, self._folder = settings, buffers, folder
        self._request = request
        self._instruction = checked_instruction(request.instruction)
        self._files = OpenFiles(self if request.apply == "face" else None)
        self._place = place
        self._given = request.text
        self._steers: list[str] = []
        self._working: asyncio.Task[object] | None = None
        self._is_stopped = False
        self._placed: asyncio.Future[None] | None = None  # the face has put a text in place
        self.broadcast = EditBroadcast()

    # ---- what the face may say ----------------------------------------------------------------------

    def steer(self, text: str) -> None:
        """Begin again with this added to the instruction."""
        if not text.strip():
            raise BadRequest("The steer is empty.")
        self._steers.append(text)
        if self._working is not None:
            self._working.cancel()

    def stop(self) -> None:
        """End it. Nothing is written."""
        self._is_stopped = True
        if self._working is not None:
            self._working.cancel()

    def placed(self, problem: str) -> None:
        """Take the face's word that an accepted text is in place, or why it is not."""
        if self._placed is None or self._placed.done():
            raise BadRequest("Nothing waits to be written.")
        if problem:
            self._placed.set_exception(WriteProblem(f"The editor did not write it: {problem}", "Try again."))
        else:
            self._placed.set_result(None)

    # ---- the editor of the edit's files -------------------------------------------------------------

    async def read(self, path: Path) -> str | None:
        """Return the text as the face sees it now, None for that on disk."""
        known = self._buffers.text(path)
        return self._given if known is None and path == self._place else known

    async def write(self, path: Path, text: str) -> None:
        """Let the face put a text in place, and wait for it."""
        self._placed = asyncio.get_running_loop().create_future()
        self.broadcast.tell(EditAccepted(files=[AcceptedFile(path=str(path), text=text)]))
        try:
            async with asyncio.timeout(WRITTEN_S):
                await self._placed
        except TimeoutError as error:
            raise WriteProblem("The editor did not say that the text is in place.") from error
        if path == self._place:
            self._given = text

    # ---- the work -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do the edit to its end, which is told exactly once, whatever happens."""
        ending = EditEnded(status="failed")
        try:
            ending = await self._run()
        except VivaceError as error:
            self.broadcast.show(Failed.of(error))
        except asyncio.CancelledError:
            ending = EditEnded(status="stopped")
            raise
        except Exception as error:
            self.broadcast.show(Failed.of(TurnFault(f"Something of ours broke: {type(error).__name__}.")))
            raise
        finally:
            self.broadcast.tell(ending)

    async def _run(self) -> EditEnded:
        connection = Connection(self._settings, starts_server=False)
        connection.on_progress = lambda progress: self.broadcast.show(ModelProgress(progress))
        try:
            while True:
                self._working = asyncio.create_task(self._attempt(connection))
                try:
                    await self._working
                except asyncio.CancelledError:
                    if self._is_stopped:
                        return EditEnded(status="stopped")
                    if not self._steers:
                        raise
                    self._begin_again()
                else:
                    return self.broadcast.ending
        finally:
            if self._working is not None:
                self._working.cancel()
            await connection.close()

    def _begin_again(self) -> None:
        steer, self._steers = "\n".join(self._steers), []
        self._instruction = f"{self._instruction}\n{steer}"
        self.broadcast.show(AttemptAbandoned(self.broadcast.chars, "steered", steer))
        self.broadcast.chars = 0
        self.broadcast.say("")

    async def _attempt(self, connection: Connection) -> None:
        files, request = self._files, self._request
        await asyncio.to_thread(check_mentions, self._instruction, self._folder, files)
        text = await self.read(self._place)
        files.set_buffer(self._place, text)
        scope = await asyncio.to_thread(scope_of, self._place, request, self._instruction, files)
        wanted = self._settings.having(model=request.model)
        connection.settings = settings = await self._fetch_model(wanted)
        check_led_to(scope.source, self._place)
        memory = memory_for(settings, self._folder, settings.model)
        effort = request.effort or DEFAULT_EFFORT
        task = EditTask((scope,), self._instruction, "ask", effort, None, memory)
        journal = Journal(settings.state_dir / "undo")
        await run_edit(task, await connection.model(settings.model), self.broadcast, journal)

    async def _fetch_model(self, wanted: Settings) -> Settings:
        """Return settings whose model is on this machine. Tell how far its download is."""
        loop, attempt = asyncio.get_running_loop(), asyncio.current_task()
        assert attempt is not None

        def tell(words: str) -> None:
            if not attempt.done():  # a download goes on when its edit has ended
                self.broadcast.say(words)

        def say(words: str) -> None:
            loop.call_soon_threadsafe(tell, words)

        settings = await asyncio.to_thread(with_model_present, wanted, InWords(say))
        self.broadcast.say("")
        return settings
