"""`vivace models`: what there is, what is here; get one, remove one.

Owns the words on the screen. Does not fetch or delete: `models.download` and `models.store` do.
"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vivace.config import Settings
    from vivace.models.catalog import ModelCard

app = typer.Typer(rich_markup_mode=None, help="List, download and remove models.")

ModelName = Annotated[str, typer.Argument(help="A name from `vivace models`.", metavar="NAME")]
Offline = Annotated[bool, typer.Option("--offline", help="Use no network; fail if the model is not here.")]


@app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the models: size, licence, and where each one is."""
    if context.invoked_subcommand is None:
        list_models()


@app.command("list")
def list_models() -> None:
    """List the models: size, licence, and where each one is."""
    from vivace.config import load_settings
    from vivace.models.catalog import CATALOG

    settings = load_settings()
    rows = [("", "NAME", "SIZE", "LICENCE", "WHERE")] + [_row(settings, model) for model in CATALOG]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for mark, name, size, licence, where in rows:
        columns = f"{mark:<{widths[0]}} {name:<{widths[1]}}  {size:>{widths[2]}}  {licence:<{widths[3]}}"
        typer.echo(f"{columns}  {where}")
    typer.echo("\n* is the model that is used. Get one with `vivace models pull NAME`.")


@app.command()
def pull(name: ModelName, offline: Offline = False) -> None:
    """Download a model, or go on with a download that stopped."""
    from vivace.cli.progress import TerminalProgress
    from vivace.config import load_settings
    from vivace.models.catalog import card
    from vivace.models.download import ensure

    settings = load_settings().having(offline=offline or None)
    path = ensure(settings, card(name).name, TerminalProgress())
    typer.echo(f"{name} is here: {path}")


@app.command()
def rm(name: ModelName) -> None:
    """Remove a model from this machine."""
    from vivace.config import load_settings
    from vivace.models.catalog import card
    from vivace.models.store import remove

    freed_bytes = remove(load_settings(), card(name))
    typer.echo(f"Removed {name}: {_size(freed_bytes)} freed." if freed_bytes else f"{name} was not here.")


def _row(settings: "Settings", model: "ModelCard") -> tuple[str, str, str, str, str]:
    from vivace.models.store import card_path, is_complete, part_path

    part = part_path(settings, model)
    if is_complete(settings, model):
        where = str(card_path(settings, model))
    elif part.exists():
        where = f"{part.stat().st_size / model.size_bytes:.0%} downloaded"
    else:
        where = "not here"
    mark = "*" if settings.model == model.name else ""
    return mark, model.name, _size(model.size_bytes), model.licence, where


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
