"""A task at work in its process: from where its log ends to an end, while people may speak to it.

Owns the order: say of every interrupted call what is known, then let the loop go on; and what a message does.
Every step is in the log before its effect. Does not own the loop (`loop.task`, or `units` for small models),
nor the process (`process`).
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Protocol

from vivace.agent.conversation.connection import Connection
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.task import (
    Steered,
    TaskEnded,
)
from vivace.agent.loop.opening import open_desk
from vivace.agent.loop.task import UNATTENDED, Task
from vivace.agent.mcp.opening import NamedServers, ServerPool, servers_without_asking
from vivace.agent.mcp.servers import user_servers
from vivace.agent.mcp.tool import McpTool
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import resuming
from vivace.agent.tasks.inbox import POLL_S, Message, read_after, size_of
from vivace.agent.tasks.log import LogFace, TaskLog
from vivace.agent.tasks.records import MessageTaken
from vivace.agent.tasks.state import state_of
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.units import UnitsTask
from vivace.agent.workflows.running import WorkflowRun
from vivace.config import Settings


class Worker(Protocol):
    """What works on a task: a model with tools, or the unit loop of a small one."""

    async def run(self) -> TaskEnded: ...

    async def steer(self, text: str) -> bool: ...

    def stop(self) -> None: ...


class TaskWork:
    """One process's work on one task. Only the holder of the task's lock makes one."""

    def __init__(self, folder: TaskFolder, settings: Settings) -> None:
        self._folder = folder
        self._queued = folder.queued()
        self._log = TaskLog(folder.log_file)
        self._face = LogFace(self._log, folder.question_file)
        self._taken = state_of(folder.lines()).messages_taken
        self._settings = settings = settings.having(model=self._queued.model)
        is_small, turns = self._queued.way == "units", self._queued.limits.turns
        self._connection = Connection(settings, max_turns=turns if is_small else None, tier="background")
        self._servers = ServerPool(Path(self._queued.workspace))
        self._steering: set[asyncio.Task[bool]] = set()

    async def run(self) -> TaskEnded:
        """Work to the end. What is said while the last turn ends is still answered."""
        try:
            self._read_earlier()
            while True:
                ended = await self._run_once()
                if ended.reason != "completed" or not self._read_earlier():
                    return ended
        finally:
            await self._servers.close()
            await self._connection.close()
            self._log.close()

    async def _run_once(self) -> TaskEnded:
        worker = await self._worker()
        listening = asyncio.create_task(self._listen(worker))
        try:
            return await worker.run()
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _worker(self) -> Worker:
        """Return what goes on from the log's end."""
        queued = self._queued
        journal = Journal(self._folder.undo)
        workspace, project = Path(queued.workspace), Path(queued.folder)
        policy = Policy(queued.access, queued.asking)
        tools = await self._foreign_tools() if queued.way == "tools" and queued.asking != "never" else []
        desk = await open_desk(
            workspace,
            queued.task,
            self._face,
            policy,
            journal,
            project_folder=project,
            foreign_tools=tools,
        )
        if queued.way != "tools":
            steps = [line.step for line in self._folder.lines()]
            if queued.way == "units":
                return UnitsTask(queued.id, desk, self._connection, queued.limits, steps, UNATTENDED)
            return WorkflowRun(queued.id, desk, self._connection, queued.limits, steps)
        resuming.close_calls(self._folder.lines(), desk)
        lines = self._folder.lines()
        progress = resuming.progress_of(lines)
        desk.is_tainted |= progress.is_tainted
        desk.entries = progress.entries
        checkpoint, limits = resuming.checkpoint_of(lines), resuming.limits_of(lines)
        return Task(queued.id, self._connection, queued.model, desk, limits, checkpoint, UNATTENDED)

    async def _foreign_tools(self) -> list[McpTool]:
        """Return the tools of MCP servers, which run in the workplace. The log says what is missing, and why.

        Trust is looked at each time the task goes on, in the user's folder, which the task cannot write.
        """
        queued = self._queued
        if queued.uses_project:
            named = servers_without_asking(self._settings, Path(queued.folder))
        else:
            named = NamedServers(tuple(user_servers(self._settings.mcp_servers)))
        opened = await self._servers.use(named.servers)
        if named.servers or named.problems:
            self._face.show(opened.step(named.problems))
        return opened.tools

    # ---- messages ---------------------------------------------------------------------------------

    def _read_earlier(self) -> bool:
        """Take what was said while no model worked. Return whether there is something to tell it."""
        has_steer = False
        for number, message in read_after(self._folder.inbox_file, self._taken):
            if message.kind != "steer":
                break
            self._face.show(Steered(text=message.text))
            self._take(number, message)
            has_steer = True
        return has_steer

    async def _listen(self, worker: Worker) -> None:
        """Act on each message as it comes."""
        size = -1
        while True:
            now = size_of(self._folder.inbox_file)
            if now != size:
                size = now
                for number, message in read_after(self._folder.inbox_file, self._taken):
                    if not await self._act(worker, message):
                        return  # the task is over: what is said now waits
                    self._take(number, message)
            await asyncio.sleep(POLL_S)

    async def _act(self, worker: Worker, message: Message) -> bool:
        match message.kind:
            case "stop":
                worker.stop()
            case "answer":
                self._face.answer(message)
            case "steer":
                steering = asyncio.create_task(worker.steer(message.text))
                self._steering.add(steering)
                steering.add_done_callback(self._steering.discard)
                await asyncio.sleep(0)  # it is in the log now, or too late
                return not steering.done() or steering.result()
        return True

    def _take(self, number: int, message: Message) -> None:
        self._taken = number
        self._log.append(MessageTaken(number=number, kind=message.kind))
