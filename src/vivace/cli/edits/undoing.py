"""What `vivace undo` and `vivace redo` say, and the journal that every command opens.

Owns the words. Does not own what is taken back or merged (`agent.edits.apply.journal`).
"""

from datetime import datetime
from itertools import islice
from pathlib import Path

import click

from vivace.agent.edits.apply.entries import Kind
from vivace.agent.edits.apply.journal import Entry, Journal
from vivace.cli.show.screen import clean, complain
from vivace.config import Settings
from vivace.errors import NothingToUndo

LISTED = 30


def open_journal(settings: Settings) -> Journal:
    """Return the journal. If an edit that was cut short had to be finished, say so."""
    journal = Journal(settings.state_dir / "undo")
    for entry in journal.heal():
        complain(f"An edit was cut short. It is finished now: {entry.instruction} ({_paths(entry)})")
    return journal


def tell(what: str, entry: Entry) -> None:
    """Say what was done."""
    click.echo(clean(f"{what}: {entry.instruction} ({_paths(entry)})"))
    if any(file.is_merged for file in entry.files):
        click.echo("What came after it was kept.")


def take_back(journal: Journal, path: Path | None) -> Entry:
    """Take back the last edit in this place. If there is none, say where the last one is."""
    _check_is_here(journal, path, "edit", "undo")
    return journal.undo(path)


def bring_back(journal: Journal, path: Path | None) -> Entry:
    """Bring back what the last undo in this place took. If there is none, say where the last one is."""
    _check_is_here(journal, path, "undo", "redo")
    return journal.redo(path)


def _check_is_here(journal: Journal, path: Path | None, kind: Kind, verb: str) -> None:
    standing = journal.standing()

    def last_in(place: Path | None) -> Entry | None:
        found = (each for each in journal.entries(place) if each.kind == kind and each.number in standing)
        return next(found, None)

    if path is None or last_in(path) or not (last := last_in(None)):
        return
    hint = f"The last one is elsewhere: {last.instruction} ({_paths(last)}). `vivace {verb} --number"
    takes = "takes it back" if verb == "undo" else "brings it back"
    raise NothingToUndo(f"There is nothing to {verb} in {path}.", f"{hint} {last.number}` {takes}.")


def list_edits(journal: Journal, path: Path | None) -> None:
    """Show the newest entries, one a line."""
    standing = journal.standing()
    entries = list(islice(journal.entries(path), LISTED))
    if not entries:
        click.echo("There are no edits yet." if path is None else f"There are no edits in {path}.")
        if any(islice(journal.entries(), 1)):
            click.echo("`vivace undo --list --all` shows those elsewhere.")
    for entry in entries:
        when = datetime.fromtimestamp(entry.recorded_at_s).strftime("%Y-%m-%d %H:%M")
        state = "" if entry.number in standing else "undone" if entry.kind == "edit" else "taken back"
        text = f"{entry.number:>5}  {when}  {state:<10}  {_kind(entry)}{entry.instruction} ({_paths(entry)})"
        click.echo(clean(text))


def _kind(entry: Entry) -> str:
    """Return nothing for an edit, `undo of 12: ` for what took back others."""
    if entry.kind == "edit":
        return ""
    taken = ", ".join(map(str, entry.reverses)) if len(entry.reverses) < 4 else f"{len(entry.reverses)} steps"
    return f"{entry.kind} of {taken}: "


def _paths(entry: Entry) -> str:
    shown = [file.path for file in entry.files[:3]]
    more = len(entry.files) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
