"""`vivace memory` when it runs: lists, and a note in the user's editor.

Owns what is printed. Does not own the notes (`agent.memory`).
"""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

from vivace.agent.memory.instructions import files_for, project_root
from vivace.agent.memory.notes import Note, NoteStore
from vivace.agent.tools.bounded import printable
from vivace.agent.user_editor import edit_bytes
from vivace.config import Settings


def notes_here(settings: Settings) -> NoteStore:
    return NoteStore(settings.state_dir, project_root(Path.cwd()))


def list_memory(settings: Settings) -> None:
    """Print the instruction files and the notes of this folder."""
    files, notes = files_for([], Path.cwd(), settings.config_dir), notes_here(settings).all()
    for file in files:
        _say(f"{file.shown}  ({len(file.text)} characters)")
    list_notes(notes)
    if not files and not notes:
        print("Nothing is remembered here. `vivace memory add TEXT`, or an AGENTS.md.", file=sys.stderr)


def list_notes(notes: Iterable[Note]) -> None:
    for note in notes:
        _say(f"{note.id:>4}  {note.scope:<7}  {' '.join(note.text.split())}")


def say_note(what: str, note: Note) -> None:
    _say(f"{what}: {note.id}  {note.scope}  {' '.join(note.text.split())}")


def edit_in_editor(notes: NoteStore, number: int) -> Note:
    """Let the user change the note's text; as it was, it stays."""
    note = notes.get(number)
    changed = asyncio.run(edit_bytes("note.md", note.text.encode())).decode("utf-8")
    return note if changed.strip() == note.text.strip() else notes.change(number, changed)


def _say(text: str) -> None:
    print(printable(text))
