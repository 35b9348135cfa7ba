"""`#text`, `/memory` and the search of `/resume`: what the terminal does with notes and past conversations.

Owns their words. Imported when the first one is used. Does not own the notes (`agent.memory`).
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.memory.first_draft import INSTRUCTION, check_absent, draft, proposed, summarize
from vivace.agent.memory.instructions import files_for, project_root
from vivace.agent.memory.notes import Note as Remembered
from vivace.agent.memory.notes import NoteStore
from vivace.agent.memory.transcript_index import TranscriptIndex
from vivace.errors import UsageError
from vivace.tui.external_editor import edit_bytes
from vivace.tui.prompt.menu import Entry
from vivace.tui.transcript.blocks import Note, Table

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

USAGE = "/memory, /memory add [--user] TEXT, /memory search WORDS, /memory edit N, /memory remove N"


def notes_of(session: "Session") -> NoteStore:
    return NoteStore(session.settings.state_dir, project_root(session.folder))


async def remember(app: "VivaceApp", session: "Session", text: str) -> None:
    """Keep `#text` for this project, and tell it to the model with the next message."""
    note = await asyncio.to_thread(notes_of(session).add, text)
    session.talk.note(note.text)
    app.transcript.add(Note(f"Remembered for this project as note {note.id}. /memory lists them."))


async def use_memory(app: "VivaceApp", session: "Session", argument: str) -> None:
    """List, add, search, edit or remove notes."""
    what, _, rest = argument.partition(" ")
    notes, rest = notes_of(session), rest.strip()
    match what:
        case "":
            await _list(app, session, notes)
        case "add":
            for_all = rest.startswith("--user ")
            note = await asyncio.to_thread(notes.add, rest.removeprefix("--user "), for_all=for_all)
            app.transcript.add(Note(f"Remembered: {_line(note)}"))
        case "search" if rest:
            found = await asyncio.to_thread(notes.search, rest)
            app.transcript.add(Table([_line(note) for note in found] or ["none"], f"Notes with {rest}"))
        case "remove":
            note = await asyncio.to_thread(notes.remove, _number(rest))
            app.transcript.add(Note(f"Forgot: {_line(note)}"))
        case "edit":
            await _edit(app, notes, _number(rest))
        case _:
            raise UsageError(f"There is no /memory {what}.", USAGE)


async def _list(app: "VivaceApp", session: "Session", notes: NoteStore) -> None:
    files = files_for([], session.folder, session.settings.config_dir)
    rows = [f"{file.shown}  {len(file.text)} characters" for file in files]
    rows += [_line(note) for note in await asyncio.to_thread(notes.all)]
    app.transcript.add(Table(rows or ["Nothing yet. #text is a note, /init writes an AGENTS.md."], "Memory"))


async def _edit(app: "VivaceApp", notes: NoteStore, number: int) -> None:
    note = await asyncio.to_thread(notes.get, number)
    text = (await edit_bytes(app, "note.md", note.text.encode())).decode("utf-8")
    changed = await asyncio.to_thread(notes.change, number, text)
    app.transcript.add(Note(f"Changed: {_line(changed)}"))


async def find_past(app: "VivaceApp", session: "Session", words: str) -> None:
    """Offer the turns of past conversations that have these words."""
    index = TranscriptIndex(conversations_dir(session.settings))
    found = [each for each in await asyncio.to_thread(index.search, words) if each.id != session.talk.id]
    if not found:
        raise UsageError(f"No conversation has the words {words!r}.", "/resume lists all of them.")
    here = str(session.talk.folder)
    entries = [
        Entry(each.excerpt[:200] or each.text, each.id, each.id if each.folder == here else each.folder)
        for each in found
    ]
    app.menu.open(entries, lambda chosen: app.run_command(f"/resume {chosen}"), title="Resume:")


async def write_first_draft(app: "VivaceApp", session: "Session", *, is_described: bool) -> None:
    """Offer an AGENTS.md as a turn of the conversation, so that it is taken, left or undone like any edit."""
    root = project_root(session.folder)
    check_absent(root)
    summary = ""
    if is_described:
        app.hint("the model reads the project")
        try:
            summary = await summarize(await session.talk.connection.model(session.talk.model), root)
        finally:
            app.hint("")
    proposal = proposed(root, await asyncio.to_thread(draft, root, summary))
    await session.talk.offer(INSTRUCTION, proposal)


def _line(note: Remembered) -> str:
    return f"{note.id:>3}  {note.scope:<7}  {' '.join(note.text.split())}"


def _number(text: str) -> int:
    with contextlib.suppress(ValueError):
        return int(text)
    raise UsageError("Which note?", USAGE)
