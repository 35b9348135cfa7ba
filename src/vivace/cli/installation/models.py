"""`vivace models`: what there is, what is here, what this machine can run; get one, remove one.

Owns the words on the screen. Does not fetch or delete: `models.download` and `models.store` do.
"""

import json
import shutil
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from vivace.config import Settings

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each model.")
ALL = click.option("--all", "is_all", is_flag=True, help="Show every model, a line each.")


@click.group(invoke_without_command=True)
@AS_JSON
@ALL
@click.pass_context
def models(context: click.Context, as_json: bool, is_all: bool) -> None:
    """List, download and remove models: what is here, and what suits this machine."""
    if context.invoked_subcommand is None:
        _list(as_json=as_json, is_all=is_all)


@models.command("list")
@AS_JSON
@ALL
def list_models(as_json: bool, is_all: bool) -> None:
    """List what is here and what suits this machine: size, speed, licence, how far it goes back."""
    _list(as_json=as_json, is_all=is_all)


def _list(*, as_json: bool, is_all: bool) -> None:
    from vivace.cli.installation.model_list import as_object, listing, show_all, show_short
    from vivace.config import load_settings

    settings = load_settings()
    listed = listing(settings)
    if as_json:
        for row in listed.rows:
            click.echo(json.dumps(as_object(settings, row, listed)))
    elif is_all:
        show_all(listed)
    else:
        show_short(settings, listed, shutil.get_terminal_size().columns)


@models.command()
@click.argument("name")
@click.option("--offline", is_flag=True, help="Use no network; fail if the model is not here.")
@click.option("--anyway", is_flag=True, help="Also if this machine has too little memory for it.")
def pull(name: str, offline: bool, anyway: bool) -> None:
    """Download a model, or go on with a download that stopped.

    NAME is one from `vivace models`, or hf:OWNER/REPO, hf:OWNER/REPO:Q4_K_M or hf:OWNER/REPO:FILE.gguf for
    any GGUF model of the hub. A gated repository needs your token in HF_TOKEN.
    """
    from vivace.config import load_settings
    from vivace.models.store import card_path, find_card, full_name, is_complete, owner_of

    settings = load_settings().having(offline=offline or None)
    name = full_name(settings, name)
    card = find_card(settings, name)
    if card and is_complete(settings, card):
        path = card_path(settings, card)
    else:
        _say_what_vanished(settings, name)
        name, path = _pulled(settings, name, anyway=anyway)
        card = find_card(settings, name)
    click.echo(f"{name} is here: {path}")
    if card and (owner := owner_of(settings, card)):
        click.echo(f"It is a link to a file of {owner}, which was neither copied nor changed.")
    if card and card.is_sum_ours:
        click.echo("The hub could not be asked for its checksum: the one in its card is our own.")


def _say_what_vanished(settings: "Settings", name: str) -> None:
    """Say it if the model was adopted from another program, and its file is not what it was."""
    from vivace.errors import ModelUnavailable
    from vivace.models.store import check_adopted

    try:
        check_adopted(settings, name)
    except ModelUnavailable as problem:
        click.echo(problem.message, err=True)


def _pulled(settings: "Settings", name: str, *, anyway: bool) -> "tuple[str, Path]":
    """Download the model, once it is seen that this machine can run it."""
    from vivace.cli.installation.fetching import say_what_fits
    from vivace.cli.show.progress import TerminalProgress
    from vivace.models.catalog import pinned
    from vivace.models.download import current_card
    from vivace.models.download import pull as download

    progress = TerminalProgress()
    card = current_card(settings, name, progress)
    if not pinned(name):
        say_what_fits(settings, card, anyway=anyway)
    return card.name, download(settings, card, progress)


@models.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a model from this machine."""
    from vivace.config import load_settings
    from vivace.models.store import card_path, find_card, full_name, owner_of, remove

    settings = load_settings()
    card = find_card(settings, full_name(settings, name))
    owner = owner_of(settings, card) if card else ""
    is_link = card is not None and card_path(settings, card).is_symlink()
    freed_bytes = remove(settings, card) if card else 0
    if is_link:
        whose = f"The file belongs to {owner}, and stays." if owner else "The file stays where it is."
        click.echo(f"Removed the link to {name}. {whose}")
    else:
        click.echo(f"Removed {name}: {_size(freed_bytes)} freed." if freed_bytes else f"{name} was not here.")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
