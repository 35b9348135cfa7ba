"""`vivace`: the commands, and how every failure ends.

Owns the list of commands, exit codes and the one place where errors become words. Each command imports what
it needs when it runs, so that `vivace --help` is instant.
"""

import os
import sys
from typing import Annotated

import typer

from vivace import __version__
from vivace.cli import ask, doctor, edit, models, serve
from vivace.errors import FAILED, INTERRUPTED, USAGE, VivaceError

app = typer.Typer(
    name="vivace",
    help="Real-time coding on your own machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(edit.edit)
app.command()(edit.undo)
app.command()(ask.ask)
app.add_typer(models.app, name="models")
app.command()(serve.serve)
app.command()(serve.status)
app.command()(serve.stop)
app.command()(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vivace {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Real-time coding on your own machine."""
    del version


def main() -> int:
    """Run one command; every way it can end has its exit code."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except VivaceError as error:
        _tell(error)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone: nothing to say, nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _usage(error)
    return code if isinstance(code, int) else 0


def _usage(error: Exception) -> int:
    """What the command line's parser refuses: its own words, the usage, exit code 2."""
    from vivace.cli.screen import complain

    context = getattr(error, "ctx", None)
    command = context.command_path if context else "vivace"
    complain(error.format_message() or "Something is missing.", f"See `{command} --help`.")  # type: ignore[attr-defined]
    return USAGE


def _tell(error: VivaceError) -> None:
    from vivace.cli.screen import complain

    complain(error.message, error.hint)
