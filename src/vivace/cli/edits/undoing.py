"""What `vivace undo` and `vivace redo` say, and the journal that every command opens.

Owns the words. Does not own what is taken back or merged (`agent.edits.apply.journal`).
"""

from datetime import datetime
from itertools import islice
from pathlib import Path

import click

from vivace.agent.edits.apply.journal import Entry, Journal
from vivace.cli.show.screen import clean, complain
from vivace.config import Settings

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


def list_edits(journal: Journal, path: Path | None) -> None:
    """Show the newest entries, one a line."""
    standing = journal.standing()
    entries = list(islice(journal.entries(path), LISTED))
    if not entries:
        click.echo("There are no edits yet." if path is None else f"There are no edits in {path}.")
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
