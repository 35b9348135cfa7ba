"""Slash commands: one small function each, in one table that `/help` prints.

Owns their names and words, and those that concern the program as a whole. Imported when the first one is run
or completed, so it may import what it needs. Does not own commands about the conversation (`conversation`),
tasks, models and memory.
"""

import asyncio
import difflib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vivace.agent.edits.repair.user_tests import AllowedTests, check_can_run
from vivace.agent.effort import EFFORTS
from vivace.errors import UsageError
from vivace.tui.commands.conversation import (
    ask_beside,
    clear,
    compact,
    edit_queue,
    export,
    fork,
    redo,
    rename,
    resume,
    rewind,
    show_context,
    show_diff,
    undo,
)
from vivace.tui.commands.models import choose_model
from vivace.tui.commands.tasks import show_permissions, show_tasks, start_background
from vivace.tui.commands.workflows import use_workflow
from vivace.tui.programs import run_own_command
from vivace.tui.prompt.menu import Entry
from vivace.tui.theme import PALETTES
from vivace.tui.transcript.blocks import Note, Table, Whole

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

Run = Callable[["VivaceApp", "Session", str], Coroutine[None, None, None]]


@dataclass(frozen=True)
class Command:
    name: str
    argument: str
    help: str
    run: Run
    also: tuple[str, ...] = ()  # what other programs call it


async def show_help(app: "VivaceApp", session: "Session", argument: str) -> None:
    del session, argument
    width = max(len(f"{each.name} {each.argument}") for each in COMMANDS)
    rows = [f"{f'{each.name} {each.argument}':<{width}}  {each.help}" for each in COMMANDS]
    rows += ["", "@file or @file:name points at code, !command runs a command, #text is a note that is kept"]
    app.transcript.add(Table(rows, "Commands"))
    app.transcript.add(Table(app.key_map.help(), "Keys"))


async def choose_effort(app: "VivaceApp", session: "Session", argument: str) -> None:
    chosen = next((effort for effort in EFFORTS if effort == argument), None)
    if chosen is not None:
        session.use_effort(chosen)
    elif argument:
        raise UsageError(f"There is no effort {argument!r}.", f"Efforts: {', '.join(EFFORTS)}.")
    else:
        entries = [Entry(name, name) for name in EFFORTS]
        app.menu.open(entries, lambda name: app.run_command(f"/effort {name}"), title="Effort:")


async def choose_tests(app: "VivaceApp", session: "Session", argument: str) -> None:
    if argument:
        given = "" if argument == "off" else argument
        if given:
            await check_can_run(AllowedTests(given, session.folder))
        session.use_tests(given)
    line = session.settings.test_command
    words = (
        f"Edits run this over a copy of the folder, in the sandbox: {line}" if line else "Edits run no tests."
    )
    app.transcript.add(Note(words, "" if line else "/test COMMAND lets them."))


async def show_status(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.client.warm import read_status

    del argument
    status = await asyncio.to_thread(read_status, session.settings)
    rows = [
        f"conversation  {session.talk.id}",
        f"folder        {session.folder}",
        f"model         {session.talk.model}",
    ]
    if status is None:
        rows.append("server        none runs; the next message starts one")
    else:
        engine = status.engine
        rows.append(f"server        pid {status.pid}, version {status.version}")
        rows.append(f"engine        {engine.state} on {engine.device}, window {engine.session_tokens} tokens")
    app.transcript.add(Table(rows, "Status"))


async def use_memory(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.tui.commands import memory

    await memory.use_memory(app, session, argument)


async def write_instructions(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.tui.commands.memory import write_first_draft

    if argument not in ("", "describe"):
        raise UsageError(f"There is no /init {argument}.", "/init, or /init describe")
    await write_first_draft(app, session, is_described=argument == "describe")


async def choose_theme(app: "VivaceApp", session: "Session", argument: str) -> None:
    del session
    if argument in PALETTES:
        app.use_theme(argument)
    elif argument:
        raise UsageError(f"There is no theme {argument!r}.", f"Themes: {', '.join(PALETTES)}.")
    else:
        app.menu.open(
            [Entry(name, name) for name in PALETTES], lambda name: app.use_theme(str(name)), title="Theme:"
        )


async def trust(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Show what the project's configuration would run, and trust it by a choice."""
    from vivace.agent.permissions.shown import shown_in_line
    from vivace.agent.trust.describe import described
    from vivace.agent.trust.project import read_project
    from vivace.agent.trust.settings import with_project_settings
    from vivace.agent.trust.store import TrustStore

    store, project = TrustStore(session.settings.state_dir), read_project(session.folder)
    if argument == "revoke":
        store.revoke(session.folder)
    if not project:
        app.transcript.add(Note("This folder has no configuration that needs trust."))
        return
    app.transcript.add(
        Whole(shown_in_line(f"The configuration of {project.root}:"), "\n".join(described(project)))
    )
    if store.is_trusted(project):
        app.transcript.add(Note("You trust it, as it is now.", "/trust revoke takes that back."))
        return

    def chosen(is_yes: object) -> None:
        if is_yes:
            store.trust(project)
            session.use_tests(with_project_settings(session.settings, session.folder).test_command)
        words = "Trusted. A change asks again." if is_yes else "Not trusted: nothing of it is used."
        app.transcript.add(Note(words))

    entries = [Entry("No", False, "nothing of it is used"), Entry("Yes", True, "I know who wrote it")]
    app.menu.open(entries, chosen, title="Trust it?")


async def run_doctor(app: "VivaceApp", session: "Session", argument: str) -> None:
    del session, argument
    await run_own_command(app.transcript, "doctor")


async def leave(app: "VivaceApp", session: "Session", argument: str) -> None:
    del session, argument
    app.leave()


COMMANDS = (
    Command("/help", "", "commands and keys", show_help),
    Command("/model", "[NAME]", "choose the model", choose_model, ("/models",)),
    Command("/effort", "[LEVEL]", f"how hard to try: {', '.join(EFFORTS)}", choose_effort),
    Command("/test", "[COMMAND|off]", "tests that edits may run, in the sandbox", choose_tests),
    Command("/background", "TEXT", "begin a task beside, which knows what was said", start_background),
    Command("/tasks", "[ID [ACTION]]", "background tasks: watch, steer, stop, resume, take", show_tasks),
    Command("/workflow", "[NAME [KEY=VALUE]]", "recipes of several steps: list, run, watch", use_workflow),
    Command("/permissions", "[MODE]", "what a task may do, and what asks", show_permissions),
    Command("/status", "", "conversation, server, engine", show_status),
    Command("/context", "", "what is in the prompt, token by token", show_context),
    Command("/compact", "[undo]", "let the model summarise what was said, or take that back", compact),
    Command("/clear", "", "begin a new conversation", clear, ("/new",)),
    Command("/resume", "[ID|WORDS]", "take up an earlier conversation", resume, ("/sessions",)),
    Command("/init", "[describe]", "write a first AGENTS.md from the repository", write_instructions),
    Command("/memory", "[add|search|edit|remove …]", "notes, and the AGENTS.md that are read", use_memory),
    Command("/rename", "[TITLE]", "give the conversation a name", rename),
    Command("/fork", "", "go on from here in a conversation of its own", fork),
    Command("/rewind", "[TURN [WHAT]]", "back to before a turn: code and talk, or either", rewind),
    Command("/undo", "[N]", "take the last edit back, or the Nth from the end", undo),
    Command("/redo", "[N]", "bring back what was undone last, or the Nth from the end", redo),
    Command("/diff", "[N]", "the last changes of this conversation", show_diff),
    Command("/queue", "", "messages that wait", edit_queue),
    Command("/btw", "QUESTION", "a question beside, which the conversation does not know of", ask_beside),
    Command("/export", "[FILE]", "write the conversation as Markdown", export),
    Command("/theme", "[NAME]", f"colours: {', '.join(PALETTES)}", choose_theme),
    Command("/trust", "[revoke]", "what this folder's configuration would run, and whether it may", trust),
    Command("/doctor", "", "check this machine", run_doctor),
    Command("/exit", "", "leave; the conversation is kept", leave, ("/quit",)),
)


def find(line: str) -> tuple[Command, str]:
    """Return the command that the line calls, and its argument."""
    name, _, argument = line.partition(" ")
    known = {each: command for command in COMMANDS for each in (command.name, *command.also)}
    if command := known.get(name):
        return command, argument.strip()
    near = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"There is no command {name}.", f"{hint}/help lists them.")
