"""`vivace models`: what there is, what is here, what this machine can run; get one, remove one.

Owns the words on the screen. Does not fetch or delete: `models.download` and `models.store` do.
"""

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from vivace.config import Settings
    from vivace.engine.tuning.fit import Fit, Machine
    from vivace.models.choices import Choice

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each model.")


@click.group(invoke_without_command=True)
@AS_JSON
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """List, download and remove models."""
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


@models.command("list")
@AS_JSON
def list_models(as_json: bool) -> None:
    """List the models: size, licence, what this machine can run, and where each one is."""
    _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    from vivace.config import load_settings
    from vivace.engine.tuning.fit import this_machine
    from vivace.models.choices import choices

    settings = load_settings()
    machine, loaded = this_machine(settings), _loaded(settings)
    if as_json:
        for choice in choices(settings):
            click.echo(json.dumps(_object(settings, machine, choice, loaded)))
        return
    rows = [("", "NAME", "SIZE", "LICENCE", "SPEED", "WHERE")]
    for choice in choices(settings):
        where = f"{choice.where} (loaded)" if choice.name in loaded else choice.where
        mark = "*" if settings.model == choice.name else ""
        runs = _fit(settings, machine, choice).words
        rows += [(mark, choice.name, _size(choice.size_bytes), choice.licence, runs, where)]
        rows += _made_rows(settings, choice)
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for mark, name, size, licence, runs, where in rows:
        columns = f"{mark:<{widths[0]}} {name:<{widths[1]}}  {size:>{widths[2]}}  {licence:<{widths[3]}}"
        click.echo(f"{columns}  {runs:<{widths[4]}}  {where}")
    click.echo(
        "\n* is the model that is used. Get one with `vivace models pull NAME`; any other GGUF model of "
        f"the hub is hf:OWNER/REPO.\nSpeeds are worked out {_how(machine)}."
    )


def _loaded(settings: "Settings") -> list[str]:
    """Return the models that a running server has in memory."""
    from vivace.client.warm import read_status

    status = read_status(settings)
    return status.engine.loaded if status else []


def _how(machine: "Machine") -> str:
    if machine.measured_with:
        return f"from the measured speed of {machine.measured_with}"
    return f"from measured memory bandwidth, {machine.bytes_per_second / 1e9:.0f} GB/s: no model is faster"


def _fit(settings: "Settings", machine: "Machine", choice: "Choice") -> "Fit":
    from vivace.engine.tuning.fit import fit

    return fit(machine, choice.size_bytes, choice.active_share, settings.context_tokens)


def _object(
    settings: "Settings", machine: "Machine", choice: "Choice", loaded: list[str]
) -> dict[str, object]:
    import msgspec

    found = _fit(settings, machine, choice)
    return msgspec.structs.asdict(choice) | {
        "fits": found.fits,
        "needed_bytes": found.needed_bytes,
        "tokens_per_second": None if found.is_on_gpu else round(found.tokens_per_second, 1),
        "is_loaded": choice.name in loaded,
    }


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
    from vivace.models.store import card_path, find_card, full_name, is_complete

    settings = load_settings().having(offline=offline or None)
    name = full_name(settings, name)
    card = find_card(settings, name)
    if card and is_complete(settings, card):
        path = card_path(settings, card)
    else:
        name, path = _pulled(settings, name, anyway=anyway)
    click.echo(f"{name} is here: {path}")


def _pulled(settings: "Settings", name: str, *, anyway: bool) -> "tuple[str, Path]":
    """Download the model, once it is seen that this machine can run it."""
    from vivace.cli.installation.fetching import say_what_fits
    from vivace.cli.show.progress import TerminalProgress
    from vivace.models.catalog import pinned
    from vivace.models.download import check_may_download, current_card
    from vivace.models.download import pull as download

    check_may_download(settings, name)
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
    from vivace.models.store import find_card, full_name, remove

    settings = load_settings()
    card = find_card(settings, full_name(settings, name))
    freed_bytes = remove(settings, card) if card else 0
    click.echo(f"Removed {name}: {_size(freed_bytes)} freed." if freed_bytes else f"{name} was not here.")


def _made_rows(settings: "Settings", choice: "Choice") -> list[tuple[str, str, str, str, str, str]]:
    """Return rows for weights that tuning has made from this model. They are removed with it."""
    from vivace.models.store import find_card, tuned_files

    card = find_card(settings, choice.name)
    made = [path for path in tuned_files(settings, card) if path.suffix == ".gguf"] if card else []
    return [
        ("", f"  {path.suffixes[-2][1:]} made here", _size(path.stat().st_size), "", "", str(path))
        for path in made
    ]


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
