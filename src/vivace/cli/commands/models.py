"""`vivace models`: what there is, what is here; get one, remove one.

Owns the words on the screen. Does not fetch or delete: `models.download` and `models.store` do.
"""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vivace.config import Settings
    from vivace.models.catalog import ModelCard


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List, download and remove models."""
    if context.invoked_subcommand is None:
        _list()


@models.command("list")
def list_models() -> None:
    """List the models: size, licence, and where each one is."""
    _list()


def _list() -> None:
    from vivace.config import load_settings
    from vivace.models.catalog import CATALOG

    settings = load_settings()
    rows = [("", "NAME", "SIZE", "LICENCE", "WHERE")]
    for model in CATALOG:
        rows += [_row(settings, model), *_made_rows(settings, model)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for mark, name, size, licence, where in rows:
        columns = f"{mark:<{widths[0]}} {name:<{widths[1]}}  {size:>{widths[2]}}  {licence:<{widths[3]}}"
        click.echo(f"{columns}  {where}")
    click.echo("\n* is the model that is used. Get one with `vivace models pull NAME`.")


@models.command()
@click.argument("name")
@click.option("--offline", is_flag=True, help="Use no network; fail if the model is not here.")
def pull(name: str, offline: bool) -> None:
    """Download a model, or go on with a download that stopped."""
    from vivace.cli.show.progress import TerminalProgress
    from vivace.config import load_settings
    from vivace.models.catalog import card
    from vivace.models.download import ensure

    settings = load_settings().having(offline=offline or None)
    path = ensure(settings, card(name).name, TerminalProgress())
    click.echo(f"{name} is here: {path}")


@models.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a model from this machine."""
    from vivace.config import load_settings
    from vivace.models.catalog import card
    from vivace.models.store import remove

    freed_bytes = remove(load_settings(), card(name))
    click.echo(f"Removed {name}: {_size(freed_bytes)} freed." if freed_bytes else f"{name} was not here.")


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


def _made_rows(settings: "Settings", model: "ModelCard") -> list[tuple[str, str, str, str, str]]:
    """The weights in other formats that tuning has made from this model, which go when it goes."""
    from vivace.models.store import tuned_files

    made = [path for path in tuned_files(settings, model) if path.suffix == ".gguf"]
    return [
        ("", f"  {path.suffixes[-2][1:]} made here", _size(path.stat().st_size), "", str(path))
        for path in made
    ]


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
