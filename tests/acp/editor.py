"""An ACP client for tests: keeps what it is told, answers questions as prepared, may have files open."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    FileSystemCapabilities,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
)

HANG_S = 60.0
FILES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True))
TERMINALS = ClientCapabilities(terminal=True)
NOTHING = ClientCapabilities()


class FakeEditorClient:
    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = []
        self.answers: list[str] = []  # kinds or ids of options, in order; then the first option
        self.never_answers = False
        self.on_asked: Callable[[], None] = lambda: None
        self.buffers: dict[str, str] = {}
        self.written: list[str] = []
        self.refuses_writes = False
        self.terminals: list[list[str]] = []  # the commands that were run in them
        self.released: list[str] = []
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._changed = asyncio.Event()

    # ---- what the agent calls -----------------------------------------------------------------------

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        del session_id
        self.updates.append(update)
        self._changed.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        del session_id
        self.asked.append((tool_call, options))
        self._changed.set()
        self.on_asked()
        if self.never_answers:
            await asyncio.Event().wait()
        wanted = self.answers.pop(0) if self.answers else options[0].option_id
        for option in options:
            if wanted in (option.option_id, option.kind):
                outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
                return RequestPermissionResponse(outcome=outcome)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        del session_id
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        return ReadTextFileResponse(content=await asyncio.to_thread(Path(path).read_text))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        del session_id
        if self.refuses_writes:
            raise RequestError(-32603, "the buffer is read-only")
        self.written.append(path)
        self.buffers[path] = content
        await asyncio.to_thread(Path(path).write_text, content)

    async def create_terminal(self, session_id: str, command: str, **given: Any) -> CreateTerminalResponse:
        del session_id
        self.terminals.append([command, *(given.get("args") or [])])
        process = await asyncio.create_subprocess_exec(
            command,
            *(given.get("args") or []),
            cwd=given.get("cwd"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._processes[str(process.pid)] = process
        return CreateTerminalResponse(terminal_id=str(process.pid))

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        del session_id
        return WaitForTerminalExitResponse(exit_code=await self._processes[terminal_id].wait())

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        del session_id
        process = self._processes[terminal_id]
        assert process.stdout is not None
        output = (await process.stdout.read()).decode()
        status = TerminalExitStatus(exit_code=process.returncode)
        return TerminalOutputResponse(output=output, truncated=False, exit_status=status)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        del session_id
        self._processes[terminal_id].kill()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        del session_id
        self.released.append(terminal_id)
        if self._processes[terminal_id].returncode is None:
            self._processes[terminal_id].kill()
            await self._processes[terminal_id].wait()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        del params
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    # ---- what the test sees -------------------------------------------------------------------------

    @property
    def said(self) -> str:
        return "".join(_text(each) for each in self.updates if isinstance(each, AgentMessageChunk))

    @property
    def thought(self) -> str:
        return "".join(_text(each) for each in self.updates if isinstance(each, AgentThoughtChunk))

    @property
    def calls(self) -> dict[str, list[Any]]:
        """The updates of each tool call, in order."""
        found: dict[str, list[Any]] = {}
        for each in self.updates:
            if isinstance(each, ToolCallStart | ToolCallProgress):
                found.setdefault(each.tool_call_id, []).append(each)
        return found

    def kinds(self) -> list[str]:
        return [each.session_update for each in self.updates]

    def notice(self) -> None:
        """Let `until` look again."""
        self._changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def _text(chunk: AgentMessageChunk | AgentThoughtChunk) -> str:
    return str(getattr(chunk.content, "text", ""))
