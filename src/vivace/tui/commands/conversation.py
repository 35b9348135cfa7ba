"""Slash commands about the conversation: its beginning, its context, its turns, its edits, its queue.

Owns what each asks of the session. Does not own the conversation's rules (`agent.conversation`).
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.agent.conversation.undoing import nth_entry
from vivace.errors import UsageError
from vivace.tui.prompt.menu import Entry
from vivace.tui.transcript.blocks import Note, Table

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

REWINDS = ("code and talk", "talk", "code")


async def clear(app: "VivaceApp", session: "Session", argument: str) -> None:
    del argument
    await session.switch(None)
    app.forget_screen()
    app.transcript.add(Note("A new conversation. /resume brings the last one back."))


async def resume(app: "VivaceApp", session: "Session", argument: str) -> None:
    from vivace.agent.conversation.transcript.file import is_id

    if argument and not is_id(argument):
        from vivace.tui.commands.memory import find_past

        await find_past(app, session, argument)
        return
    if argument:
        await session.switch(argument)
        session.presenter.begin_again(session.talk.turns)
        if not session.talk.is_held:
            others = ", ".join(session.talk.others)
            app.transcript.add(Note(f"Also open in {others}: what is said in one is seen in all."))
        session.talk.follow()
        return
    from vivace.agent.conversation.past import list_past
    from vivace.agent.conversation.sharing.places import socket_of
    from vivace.agent.conversation.transcript.file import file_named

    entries = []
    for past in list_past(session.settings, limit=100):
        if (past.turns or past.is_damaged) and past.id != session.talk.id:
            here = "" if past.folder == str(session.talk.folder) else f", {past.folder}"
            here += ", open elsewhere" if socket_of(file_named(session.settings, past.id)).exists() else ""
            entries.append(Entry(past.shown_title, past.id, f"{past.id}, {past.turns} turns{here}"))
    app.menu.open(entries, lambda chosen: app.run_command(f"/resume {chosen}"), title="Resume:")


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
        await session.talk.undo_compact()
        return
    try:
        await session.talk.compact()
    finally:
        app.status.activity = ""
        app.changed()


async def rename(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Give the conversation a name; without one, the first message names it again."""
    await session.talk.rename(argument)
    app.transcript.add(Note(f"This conversation is called: {session.talk.title}"))


async def fork(app: "VivaceApp", session: "Session", argument: str) -> None:
    del argument
    before = session.talk.id
    await session.go_on_with(await session.talk.fork())
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
    await session.talk.rewind(int(number), code=what != "talk", talk=what != "code")
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
    del app
    await session.talk.undo(nth_entry(session.talk.turns, "applied", argument))


async def redo(app: "VivaceApp", session: "Session", argument: str) -> None:
    del app
    await session.talk.redo(nth_entry(session.talk.turns, "undone", argument))


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
