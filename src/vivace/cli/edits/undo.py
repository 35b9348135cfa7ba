"""`vivace undo` and `vivace redo`: their arguments.

Owns the options. Does not own what is taken back (`agent.edits.apply.journal`) nor what is said (`undoing`).
"""

import click


@click.command()
@click.argument("path", required=False)
@click.option("--number", type=int, metavar="N", help="Take back edit N; what came after it stays.")
@click.option("--to", type=int, metavar="N", help="Take back all after N in PATH or this folder as one.")
@click.option("--list", "as_list", is_flag=True, help="Show the edits and their numbers, change nothing.")
def undo(path: str | None, number: int | None, to: int | None, as_list: bool) -> None:
    """Take the last edit back, or the last one of PATH, a file or a folder."""
    from pathlib import Path

    from vivace.cli.edits.undoing import list_edits, open_journal, tell
    from vivace.config import load_settings
    from vivace.errors import UsageError

    if (number is not None) + (to is not None) + as_list > 1:
        raise UsageError("Only one of --number, --to and --list can be used.", "See `vivace undo --help`.")
    journal, where = open_journal(load_settings()), Path(path) if path else None
    if as_list:
        list_edits(journal, where)
    elif to is not None:
        tell("Took back", journal.rewind(to, where or Path.cwd()))
    else:
        tell("Took back", journal.undo(where, number=number))


@click.command()
@click.argument("path", required=False)
@click.option("--number", type=int, metavar="N", help="Bring back edit N, which was undone.")
def redo(path: str | None, number: int | None) -> None:
    """Bring back what the last undo took, or the last one of PATH."""
    from pathlib import Path

    from vivace.cli.edits.undoing import open_journal, tell
    from vivace.config import load_settings

    journal = open_journal(load_settings())
    tell("Brought back", journal.redo(Path(path) if path else None, number=number))
