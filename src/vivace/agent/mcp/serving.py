"""Our edit and our question as MCP tools for other agents, in one folder.

Owns what the two tools do and may do: a path is decided on like a task's (`decision`), an edit goes through
the journal, and `vivace undo` takes it back. Does not own the edit itself (`flow`). Serving needs the extra
`mcp`.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from vivace import __version__
from vivace.agent.ask import read_question, run_ask
from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.transcript.recording import unified
from vivace.agent.edits.apply.entries import way_back
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.source import check_led_to
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Decision, Proposal, Reject
from vivace.agent.edits.scope import checked_instruction, read_scope
from vivace.agent.events.edit import EditProposed
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import ModelProgress
from vivace.agent.events.turn import AnswerGrew
from vivace.agent.model import Model
from vivace.agent.permissions.decision import Need, ReadPath, Situation, WritePath, decide
from vivace.agent.permissions.paths import locate
from vivace.agent.permissions.policy import Policy, project_policy
from vivace.agent.tools.base import Arguments, schema_of
from vivace.config import Settings
from vivace.errors import ApprovalNeeded, ServerGone, VivaceError
from vivace.models.presence import with_model_present
from vivace.models.progress import InWords

T = TypeVar("T")
Say = Callable[[str], None]  # takes what is waited for, in words


class EditArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="PATH, PATH:NAME or PATH:L1-L2, relative to the folder")]
    instruction: Annotated[str, Meta(description="what to change, in plain words")]
    apply: Annotated[bool, Meta(description="write the change; false: only return the diff")] = True


class AskArguments(Arguments, frozen=True, kw_only=True):
    question: str
    paths: Annotated[tuple[str, ...], Meta(description="files to read with it")] = ()


class OwnTools:
    """The two tools, in one folder."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(settings, self._say_from_thread)
        self._connection.on_progress = lambda progress: self._say(ModelProgress(progress).in_words)
        self._is_model_here = False
        self._calls: list[Say] = []  # that are under way: all wait for the same model
        self._fetching = asyncio.Lock()

    async def edit(self, given: EditArguments) -> str:
        """Rewrite the unit that the instruction is about. Return the diff, and how to undo it."""
        target = parse_target(str(self._folder / given.path))
        place = locate(self._folder, str(target.path))
        self._check(WritePath(place))
        instruction = checked_instruction(given.instruction)
        journal = Journal(self._settings.state_dir / "undo", self._folder)
        journal.heal()
        scope = read_scope(target, to_write=given.apply, instruction=instruction)
        check_led_to(scope.source, place.path)
        task = EditTask((scope,), instruction, "always" if given.apply else "never")
        kept = _Kept()

        async def work(model: Model) -> str:
            entry = await run_edit(task, model, kept, journal)
            what = f"Written; {way_back(entry.number)}." if entry else "Not written."
            return f"{what}\n{kept.diff}"

        return await self._with_model(work)

    async def ask(self, given: AskArguments) -> str:
        """Answer a question, perhaps about files of the folder."""
        places = [locate(self._folder, path) for path in given.paths]
        for place in places:
            self._check(ReadPath(place))
        paths = [self._folder / path for path in given.paths]
        question = read_question(given.question, paths, judged=[place.path for place in places])
        kept = _Kept()

        async def work(model: Model) -> str:
            kept.text = ""
            await run_ask(question, model, kept)
            return kept.text

        return await self._with_model(work)

    @contextmanager
    def telling(self, say: Say) -> Iterator[None]:
        """Say what a call waits for, as long as the block lasts."""
        self._calls.append(say)
        try:
            yield
        finally:
            self._calls.remove(say)

    async def close(self) -> None:
        await self._connection.close()

    def _say(self, words: str) -> None:
        for say in self._calls if words else []:
            say(words)

    def _say_from_thread(self, words: str) -> None:
        self._loop.call_soon_threadsafe(self._say, words)

    def _check(self, need: Need) -> None:
        """Raise ApprovalNeeded for what is not simply allowed: nobody is here to ask."""
        project = project_policy(self._folder)
        policies = (Policy(), project) if project else (Policy(),)
        verdict = decide([need], policies, Situation(is_tainted=True, has_sandbox=True))
        if verdict.kind != "allow":
            raise ApprovalNeeded(verdict.reason)

    async def _with_model(self, work: Callable[[Model], Awaitable[T]]) -> T:
        """Do it with a model; once more if the server goes away under it."""
        async with self._fetching:
            if not self._is_model_here:
                progress = InWords(self._say_from_thread)
                settings = await asyncio.to_thread(with_model_present, self._settings, progress)
                self._settings = self._connection.settings = settings
                self._is_model_here = True
        try:
            return await work(await self._connection.model(self._settings.model))
        except ServerGone:
            await self._connection.renew()
            return await work(await self._connection.model(self._settings.model))


class _Kept:
    """A presenter that keeps the diff and the answer, and asks nobody."""

    def __init__(self) -> None:
        self.diff = ""
        self.text = ""

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, EditProposed):
            self.diff = "".join(map(unified, event.proposal.files))
        elif isinstance(event, AnswerGrew):
            self.text += event.text

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        return Reject()

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        return Stop()


# ---- as an MCP server -------------------------------------------------------------------------------

DESCRIPTIONS: dict[str, tuple[type[Arguments], str]] = {
    "edit": (
        EditArguments,
        "Rewrite one function, class or piece of a file with a local model. Only that unit changes. "
        "Returns a unified diff. The change can be undone.",
    ),
    "ask": (AskArguments, "Ask a local model a question, about code or about files of this folder."),
}


async def serve(settings: Settings, folder: Path) -> None:
    """Serve both tools on stdin and stdout, until stdin ends."""
    from mcp.server.stdio import stdio_server

    tools = OwnTools(settings, folder)
    server = mcp_server(tools)
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await tools.close()


def mcp_server(tools: OwnTools) -> Any:
    """Return the SDK's server with our two tools."""
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        del context, params
        listed = [
            Tool(name=name, description=words, input_schema=schema_of(kind))
            for name, (kind, words) in DESCRIPTIONS.items()
        ]
        return ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        number = itertools.count(1)
        async with asyncio.TaskGroup() as reports:

            def say(words: str) -> None:  # nobody hears it unless the client has asked for progress
                reports.create_task(context.session.report_progress(next(number), message=words))

            with tools.telling(say):
                said, is_error = await answer(params)
        return CallToolResult(content=[TextContent(type="text", text=said)], is_error=is_error)

    async def answer(params: CallToolRequestParams) -> tuple[str, bool]:
        """Return what the tool says, and whether that is an error."""
        given = params.arguments or {}
        try:
            match params.name:
                case "edit":
                    return await tools.edit(msgspec.convert(given, EditArguments)), False
                case "ask":
                    return await tools.ask(msgspec.convert(given, AskArguments)), False
                case _:
                    raise VivaceError(f"There is no tool {params.name!r:.60}.", "There are edit and ask.")
        except msgspec.ValidationError as error:
            return f"Error: {error}", True
        except VivaceError as error:
            return f"Error: {error.message} {error.hint}".strip(), True

    return Server("vivace", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)
