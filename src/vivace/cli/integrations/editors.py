"""`vivace editors`: our extension in editors on this machine.

Owns the words on the screen; `vivace.editors` builds and installs.
"""

from pathlib import Path

import click

KINDS = ("vscode",)


@click.group(invoke_without_command=True)
@click.pass_context
def editors(context: click.Context) -> None:
    """Use Vivace in your editor: list editors, install the extension."""
    if context.invoked_subcommand is None:
        _list()


@editors.command("list")
def list_editors() -> None:
    """List the editors on this machine, and whether the extension is in them."""
    _list()


@editors.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--with", "program", metavar="COMMAND", help="Install through this command only, such as code.")
def install(kind: str, program: str | None) -> None:
    """Build the extension and install it. No Node.js is needed."""
    del kind
    from vivace.editors.installing import install as install_into

    install_into(lambda line: click.echo(line, err=True), program)
    click.echo("Installed. A window that is open uses it after `Developer: Reload Window`.")


@editors.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--to", "target", type=click.Path(path_type=Path), default=Path("vivace.vsix"), show_default=True
)
def build(kind: str, target: Path) -> None:
    """Write the extension as a .vsix file, to be installed from the editor's Extensions view."""
    del kind
    from vivace.editors.installing import own_command
    from vivace.editors.vsix import build_vsix
    from vivace.errors import UsageError

    try:
        build_vsix(target, own_command())
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}.", "Name another file: --to."
        ) from error
    click.echo(str(target))


def _list() -> None:
    from vivace.editors.installing import COMMANDS, find_editors

    found = find_editors()
    for editor in found:
        state = (
            f"extension {editor.version}"
            if editor.version
            else "no extension: `vivace editors install vscode`"
        )
        click.echo(f"{editor.name:<14} {editor.program}: {state}")
    if not found:
        click.echo(f"No editor is on the PATH ({', '.join(COMMANDS)}).")
