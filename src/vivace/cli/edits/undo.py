"""`vivace undo` and `vivace redo`: their arguments.

Owns the options. Does not own what is taken back (`agent.edits.apply.journal`) nor what is said (`undoing`).
"""

from pathlib import Path

import click

_all_option = click.option("--all", "anywhere", is_flag=True, help="In all folders, not only in this one.")


@click.command()
@click.argument("path", required=False)
@click.option("--number", type=int, metavar="N", help="Take back edit N; what came after it stays.")
@click.option("--to", type=int, metavar="N", help="Take back all after N in PATH or this folder as one.")
@click.option("--list", "as_list", is_flag=True, help="Show the edits and their numbers, change nothing.")
@_all_option
def undo(path: str | None, number: int | None, to: int | None, as_list: bool, anywhere: bool) -> None:
    """Take back the last edit in this folder, or the last one of PATH, a file or a folder."""
    from vivace.cli.edits.undoing import list_edits, open_journal, take_back, tell
    from vivace.config import load_settings
    from vivace.errors import UsageError

    if (number is not None) + (to is not None) + as_list > 1:
        raise UsageError("Only one of --number, --to and --list can be used.", "See `vivace undo --help`.")
    where = _place(path, anywhere=anywhere)
    journal = open_journal(load_settings())
    if as_list:
        list_edits(journal, where)
    elif to is not None:
        tell("Took back", journal.rewind(to, where))
    elif number is not None:
        tell("Took back", journal.undo(number=number))
    else:
        tell("Took back", take_back(journal, where))


@click.command()
@click.argument("path", required=False)
@click.option("--number", type=int, metavar="N", help="Bring back edit N, which was undone.")
@_all_option
def redo(path: str | None, number: int | None, anywhere: bool) -> None:
    """Bring back what the last undo in this folder took, or the last one of PATH."""
    from vivace.cli.edits.undoing import bring_back, open_journal, tell
    from vivace.config import load_settings

    where = _place(path, anywhere=anywhere)
    journal = open_journal(load_settings())
    tell("Brought back", journal.redo(number=number) if number is not None else bring_back(journal, where))


def _place(path: str | None, *, anywhere: bool) -> Path | None:
    """Return the file or folder that is meant: the one named, or this folder. None: any."""
    from vivace.errors import UsageError

    if anywhere and path is not None:
        raise UsageError("--all is for all folders, and a PATH for one.", "Leave one of them away.")
    if anywhere or path is not None:
        return None if path is None else Path(path)
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("This folder is not there any more.", "Go to another one, or use --all.") from error
