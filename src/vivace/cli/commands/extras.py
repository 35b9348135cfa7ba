"""`vivace extras`: what can be added to this installation.

Owns the words on the screen; `vivace.extras` knows the extras and installs them.
"""

import click


@click.group(invoke_without_command=True)
@click.pass_context
def extras(context: click.Context) -> None:
    """Add what is not installed by default, such as the engine for NVIDIA GPUs."""
    if context.invoked_subcommand is None:
        _list()


@extras.command("list")
def list_extras() -> None:
    """List the extras, and whether they are here."""
    _list()


@extras.command()
@click.argument("name")
def add(name: str) -> None:
    """Install one. A running server uses it after `vivace stop`."""
    from vivace.extras import find_extra, install

    extra = find_extra(name)
    if not extra.missing:
        click.echo(f"The extra {extra.name} is here already.")
        return
    install(extra)
    click.echo(f"The extra {extra.name} is here. A running server uses it after `vivace stop`.")


def _list() -> None:
    from vivace.extras import EXTRAS

    for extra in EXTRAS:
        state = f"add it with `vivace extras add {extra.name}`" if extra.missing else "here"
        click.echo(f"{extra.name:<6} {extra.what}: {state}")
