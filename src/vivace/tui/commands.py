"""Slash commands: one small function each, in one table that `/help` prints.

Owns their names, words and what each asks of the session. Imported when the first one is run or completed,
so it may import what it needs. Does not own the conversation's rules.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.agent.effort import EFFORTS
from vivace.errors import UsageError
from vivace.tui.models import choose_model
from vivace.tui.prompt.menu import Entry
from vivace.tui.task_commands import show_permissions, show_tasks, start_background
from vivace.tui.theme import PALETTES
from vivace.tui.transcript.blocks import Note, Table

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

REWINDS = ("code and talk", "talk", "code")
Run = Callable[["VivaceApp", "Session", str], Coroutine[None, None, None]]


@dataclass(frozen=True)
class Command:
    name: str
    argument: str
    help: str
    run: Run


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
        session.use_tests("" if argument == "off" else argument)
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
        state = "ready" if engine.is_ready else "loading"
        rows.append(f"engine        {state} on {engine.device}, window {engine.session_tokens} tokens")
    app.transcript.add(Table(rows, "Status"))


async def clear(app: "VivaceApp", session: "Session", argument: str) -> None:
    del argument
    await session.switch(None)
    app.forget_screen()
    app.transcript.add(Note("A new conversation. /resume brings the last one back."))


async def resume(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.agent.conversation.transcript.file import is_id

    if argument and not is_id(argument):
        from vivace.tui.remembering import find_past

        await find_past(app, session, argument)
        return
    if argument:
        await session.switch(argument)
        app.forget_screen()
        session.presenter.show_past(session.talk.turns)
        return
    from vivace.agent.conversation.opening import conversations_dir
    from vivace.agent.conversation.transcript.file import file_of, list_conversations, read_history

    folder = conversations_dir(session.settings)
    entries = []
    for began in list_conversations(folder)[:100]:
        turns = read_history(file_of(folder, began.id)).turns
        if turns and began.id != session.talk.id:
            here = "" if began.folder == str(session.talk.folder) else f", {began.folder}"
            entries.append(Entry(turns[0].text[:200], began.id, f"{began.id}, {len(turns)} turns{here}"))
    app.menu.open(entries, lambda chosen: app.run_command(f"/resume {chosen}"), title="Resume:")


async def use_memory(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.tui import remembering

    await remembering.use_memory(app, session, argument)


async def write_instructions(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.tui.remembering import write_first_draft

    if argument not in ("", "describe"):
        raise UsageError(f"There is no /init {argument}.", "/init, or /init describe")
    await write_first_draft(app, session, is_described=argument == "describe")


async def show_context(app: "VivaceApp", session: "Session", argument: str) -> None:
    """List what is in the prompt, each part with its tokens."""
    use = await session.talk.context(argument)
    width = max(len(part.name) for part in use.parts)
    rows = [f"{part.name:<{width}} {part.tokens:>7}  {_beginning(part.text)}" for part in use.parts]
    window = f" of {use.window_tokens}" if use.window_tokens else ""
    app.transcript.add(
        Table([*rows, f"{'in all':<{width}} {use.used_tokens:>7}{window}"], "Context, in tokens")
    )
    app.status.context_tokens = use.used_tokens
    app.changed()


def _beginning(text: str) -> str:
    return " ".join(text[:200].split())[:60]


async def compact(app: "VivaceApp", session: "Session", argument: str) -> None:
    if argument == "undo":
        session.talk.undo_compact()
        return
    try:
        await session.talk.compact()
    finally:
        app.status.activity = ""
        app.changed()


async def fork(app: "VivaceApp", session: "Session", argument: str) -> None:
    del argument
    before = session.talk.id
    await session.go_on_with(session.talk.fork())
    app.transcript.add(Note(f"This is a fork now. /resume {before} goes back to where it began."))


async def rewind(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Choose a turn, then what goes back: code and talk, or either. Its message comes to the prompt."""
    turns = list(reversed(session.talk.turns))
    if not turns:
        raise UsageError("There is nothing to go back to.", "Say something first.")
    number, _, what = argument.partition(" ")
    if not number.isdigit():
        entries = [Entry(turn.text, turn.number, f"turn {turn.number}, {turn.kind}") for turn in turns]
        app.menu.open(entries, lambda chosen: app.run_command(f"/rewind {chosen}"), title="Back to before:")
        return
    if what not in REWINDS:
        entries = [Entry(name, name) for name in REWINDS]
        app.menu.open(entries, lambda name: app.run_command(f"/rewind {number} {name}"), title="Goes back:")
        return
    said = next((turn.text for turn in turns if turn.number == int(number)), "")
    session.talk.rewind(int(number), code=what != "talk", talk=what != "code")
    if what != "code":
        app.editor.set_text(app.editor.pastes.fold(said))


async def ask_beside(app: "VivaceApp", session: "Session", argument: str) -> None:
    del app
    if not argument:
        raise UsageError("What would you like to know?", "/btw QUESTION")
    await session.talk.btw(argument)


async def export(app: "VivaceApp", session: "Session", argument: str) -> None:
    file = session.folder / (argument or f"vivace-{session.talk.id}.md")
    try:
        await asyncio.to_thread(_write_new, file, session.talk.export())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}.", "Name another file: /export FILE"
        ) from error
    app.transcript.add(Note(f"Wrote {file}"))


def _write_new(file: Path, text: str) -> None:
    with file.open("x", encoding="utf-8") as opened:
        opened.write(text)


async def undo(app: "VivaceApp", session: "Session", argument: str) -> None:
    del app, argument
    session.talk.undo()


async def redo(app: "VivaceApp", session: "Session", argument: str) -> None:
    del app, argument
    session.talk.redo()


async def show_diff(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.tui.transcript.answer import Answer

    wanted = int(argument) if argument.isdigit() else 1
    applied = [edit for turn in session.talk.turns for edit in turn.edits if edit.outcome == "applied"]
    if not applied:
        raise UsageError("Nothing was changed in this conversation.", "Ask for a change first.")
    block = app.transcript.add(Answer())
    for edit in applied[-wanted:]:
        block.grow(f"**{edit.path}** {edit.unit}\n```diff\n{edit.diff.rstrip()}\n```\n")


async def edit_queue(app: "VivaceApp", session: "Session", argument: str) -> None:
    del argument
    queue = session.talk.queue
    entries = [
        Entry(each.text, each.id, "Enter removes it; Up at the prompt edits it") for each in queue.messages
    ]
    if not entries:
        app.transcript.add(Note("Nothing waits. Tab queues a message while a turn runs."))
        return

    def remove(chosen: object) -> None:
        assert isinstance(chosen, int)
        queue.remove(chosen)

    app.menu.open(entries, remove, title="Queued:")


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
    app.transcript.add(Table(described(project), f"The configuration of {project.root}"))
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
    await app.run_program("doctor")


async def leave(app: "VivaceApp", session: "Session", argument: str) -> None:
    del session, argument
    app.leave()


COMMANDS = (
    Command("/help", "", "commands and keys", show_help),
    Command("/model", "[NAME]", "choose the model", choose_model),
    Command("/effort", "[LEVEL]", f"how hard to try: {', '.join(EFFORTS)}", choose_effort),
    Command("/test", "[COMMAND|off]", "tests that edits may run, in the sandbox", choose_tests),
    Command("/background", "TEXT", "begin a task beside, which knows what was said", start_background),
    Command("/tasks", "[ID [ACTION]]", "background tasks: watch, steer, stop, resume, take", show_tasks),
    Command("/permissions", "[MODE]", "what a task may do, and what asks", show_permissions),
    Command("/status", "", "conversation, server, engine", show_status),
    Command("/context", "", "what is in the prompt, token by token", show_context),
    Command("/compact", "[undo]", "let the model summarise what was said, or take that back", compact),
    Command("/clear", "", "begin a new conversation", clear),
    Command("/resume", "[ID|WORDS]", "take up an earlier conversation", resume),
    Command("/init", "[describe]", "write a first AGENTS.md from the repository", write_instructions),
    Command("/memory", "[add|search|edit|remove …]", "notes, and the AGENTS.md that are read", use_memory),
    Command("/fork", "", "go on from here in a conversation of its own", fork),
    Command("/rewind", "[TURN [WHAT]]", "back to before a turn: code and talk, or either", rewind),
    Command("/undo", "", "take the last edit of this conversation back", undo),
    Command("/redo", "", "bring back what was undone last", redo),
    Command("/diff", "[N]", "the last changes of this conversation", show_diff),
    Command("/queue", "", "messages that wait", edit_queue),
    Command("/btw", "QUESTION", "a question beside, which the conversation does not know of", ask_beside),
    Command("/export", "[FILE]", "write the conversation as Markdown", export),
    Command("/theme", "[NAME]", f"colours: {', '.join(PALETTES)}", choose_theme),
    Command("/trust", "[revoke]", "what this folder's configuration would run, and whether it may", trust),
    Command("/doctor", "", "check this machine", run_doctor),
    Command("/exit", "", "leave; the conversation is kept", leave),
)


def find(line: str) -> tuple[Command, str]:
    """Return the command that the line calls, and its argument."""
    name, _, argument = line.partition(" ")
    for command in COMMANDS:
        if command.name == name:
            return command, argument.strip()
    raise UsageError(f"There is no command {name}.", "/help lists them.")
