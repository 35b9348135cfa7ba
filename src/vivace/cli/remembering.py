"""`vivace memory` and `vivace sessions` when they run: lists, and a note in the user's editor.

Owns what is printed. Does not own the notes (`agent.memory`).
"""

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.transcript.file import file_of, list_conversations, read_history
from vivace.agent.memory.instructions import files_for, project_root
from vivace.agent.memory.notes import Note, NoteStore
from vivace.agent.memory.transcript_index import TranscriptIndex
from vivace.agent.tools.bounded import printable
from vivace.config import Settings
from vivace.errors import UsageError

MAX_LISTED = 100


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
    try:
        changed = click.edit(note.text, extension=".md")
    except click.ClickException as error:
        raise UsageError(error.format_message(), "Set EDITOR to one that works.") from error
    return note if changed is None else notes.change(number, changed)


def list_past(settings: Settings) -> None:
    folder = conversations_dir(settings)
    for began in list_conversations(folder)[:MAX_LISTED]:
        if turns := read_history(file_of(folder, began.id)).turns:
            _say(f"{began.id}  {began.folder}  {' '.join(turns[0].text.split())[:80]}")


def search_past(settings: Settings, words: str, *, is_here_only: bool) -> None:
    here = str(Path.cwd().resolve())
    found = TranscriptIndex(conversations_dir(settings)).search(words)
    shown = [each for each in found if not is_here_only or each.folder == here]
    for each in shown:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.at_s))
        _say(f"{each.id}  turn {each.turn}  {when}  {each.folder}\n    {each.excerpt[:200]}")
    if not shown:
        print("No conversation has these words.", file=sys.stderr)
    else:
        print("`vivace --resume ID` goes on with one.", file=sys.stderr)


def _say(text: str) -> None:
    print(printable(text))
