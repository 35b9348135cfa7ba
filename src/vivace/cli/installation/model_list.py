"""The screens of `vivace models`: what is here and what suits this machine, or the whole table.

Owns their words and widths, for terminals of 80 columns and more. Does not decide what suits a machine
(`engine.tuning.recommend`) or what other programs have (`models.adopting`).
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from vivace.config import Settings
from vivace.engine.tuning.fit import Fit, Machine, fit, measured_speed, this_machine
from vivace.engine.tuning.recommend import recommend
from vivace.models.choices import Choice, choices
from vivace.models.store import find_card, owner_of, tuned_files

NARROWEST = 60


class Row(NamedTuple):
    choice: Choice
    fit: Fit
    is_loaded: bool
    program: str = ""  # that has its files, so that a pull only links them


class Listing(NamedTuple):
    """All that a screen says."""

    machine: Machine
    used: str  # the model of the settings
    here: list[Row]
    recommended: list[Row]
    rows: list[Row]
    made: dict[str, list[Path]]  # weights that tuning made, by model


def listing(settings: Settings) -> Listing:
    """Gather what there is; reads memory's bandwidth for a fraction of a second."""
    machine, loaded, programs = this_machine(settings), _loaded(settings), _programs()
    rows = [
        Row(
            choice,
            fit(machine, choice, settings.context_tokens, measured_speed(settings, choice.name)),
            choice.name in loaded,
            "" if choice.path else programs.get(choice.name, ""),
        )
        for choice in choices(settings)
    ]
    names = [pick.model.name for pick in recommend(machine, settings.context_tokens)]
    by_name = {row.choice.name: row for row in rows}
    made = {row.choice.name: _made(settings, row.choice) for row in rows}
    return Listing(
        machine=machine,
        used=settings.model,
        here=[row for row in rows if row.choice.path or row.choice.downloaded_bytes or made[row.choice.name]],
        recommended=[by_name[name] for name in names],
        rows=rows,
        made=made,
    )


def as_object(settings: Settings, row: Row, listed: Listing) -> dict[str, object]:
    """Return a row for programs."""
    import msgspec

    card = find_card(settings, row.choice.name)
    return msgspec.structs.asdict(row.choice) | {
        "fits": row.fit.fits,
        "needed_bytes": row.fit.needed_bytes,
        "tokens_per_second": round(row.fit.tokens_per_second, 1) or None,
        "is_measured": row.fit.is_measured,
        "is_on_gpu": row.fit.is_on_gpu,
        "is_loaded": row.is_loaded,
        "is_recommended": row in listed.recommended,
        "steering": row.choice.steering,
        "can_be_adopted_from": row.program,
        "belongs_to": owner_of(settings, card) if card else "",
    }


# ---- what is here, and what suits this machine -------------------------------------------------------------


def show_short(settings: Settings, listed: Listing, columns: int) -> None:
    width = max(NARROWEST, columns) - 1
    click.echo("On this machine:")
    if not listed.here:
        click.echo("  nothing yet")
    for row in listed.here:
        click.echo(_headline(row, listed.used))
        card = find_card(settings, row.choice.name)
        owner = owner_of(settings, card) if card else ""
        place = _tilde(row.choice.path) if row.choice.path else row.choice.where
        _details(f"{place}{f' (belongs to {owner})' if owner else ''}", width)
        if card and card.is_sum_ours:
            _details("its checksum is our own: the hub could not be asked", width)
        for path in listed.made[row.choice.name]:
            _details(
                f"{path.suffixes[-2][1:]} made here, {_size(path.stat().st_size)}: {_tilde(path)}", width
            )
    click.echo(f"\nRecommended for this machine ({_machine_words(listed.machine)}):")
    for row in listed.recommended:
        click.echo(_headline(row, listed.used))
        facts = [row.choice.purpose, row.choice.licence, _context(row.choice), row.choice.steering]
        facts += ["has a head for drafts, which is not used"] if row.choice.has_mtp else []
        _details("; ".join(facts), width)
        if row.program:
            _details(f"{row.program} has it: a pull links that file and downloads nothing", width)
    _footer(listed, width)


def _headline(row: Row, used: str) -> str:
    mark = "*" if row.choice.name == used else " "
    loaded = ", loaded" if row.is_loaded else ""
    return f"{mark} {row.choice.name:<26}  {_size(row.choice.size_bytes):>8}  {row.fit.words}{loaded}"


def _details(text: str, width: int) -> None:
    """Print a line under a model's, folded; a path is never cut."""
    click.echo(
        textwrap.fill(
            text,
            width,
            initial_indent="    ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _footer(listed: Listing, width: int) -> None:
    adoptable = [row.choice.name for row in listed.rows if row.program and row not in listed.recommended]
    is_shown = listed.used in [row.choice.name for row in (*listed.here, *listed.recommended)]
    used = "* is the model that is used." if is_shown else f"The model that is used is {listed.used}."
    notes = [
        f"{used} `vivace models pull NAME` gets one, also hf:OWNER/REPO; "
        "`vivace models --all` shows the whole table.",
        _how(listed.machine),
    ]
    if adoptable:
        notes.insert(1, f"Other programs have these; a pull links them: {', '.join(adoptable)}.")
    click.echo("")
    for note in notes:
        click.echo(textwrap.fill(note, width, break_long_words=False, break_on_hyphens=False))


def _how(machine: Machine) -> str:
    if machine.measured_with:
        return f'"About" is an estimate, from the measured speed of {machine.measured_with}.'
    bandwidth = f"{machine.bytes_per_second / 1e9:.0f} GB/s"
    if machine.gpu_bytes_per_second:
        gpu = f"{machine.gpu_bytes_per_second / 1e9:,.0f} GB/s of the GPU's by its clock and bus"
        return f'"About" is an estimate, from memory bandwidth: {gpu}, {bandwidth} measured on the CPU.'
    return f'"About" is an estimate, from measured memory bandwidth ({bandwidth}): no model is faster.'


def _machine_words(machine: Machine) -> str:
    memory = f"{machine.memory_bytes / 1e9:.0f} GB of memory"
    gpu = f"a GPU with {machine.gpu_bytes / 1e9:.0f} GB" if machine.gpu_bytes else "no NVIDIA GPU"
    return f"{memory}, {gpu}"


# ---- the whole table ---------------------------------------------------------------------------------------


def show_all(listed: Listing) -> None:
    """Print a line for each model: 80 columns, but for long names and licences."""
    head = ("", "NAME", "SIZE", "CTX", "SPEED", "GOES BACK", "MTP", "LICENCE")
    table = [head, *(_cells(row, listed) for row in listed.rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(head) - 1)]
    for cells in table:
        sized = [
            f"{cell:>{width}}" if column in (2, 3) else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        click.echo(f"{sized[0]} {'  '.join([*sized[1:], cells[-1]])}".rstrip())
    for note in (
        "",
        "* used, + on this machine, > recommended for it, ~ estimated.",
        "Goes back: how far a steer, a fork or a corrected prompt can go back without",
        "reading again. A window goes back a little, further to saved points.",
        "MTP: the model has a head that drafts its next tokens. It is not used here.",
    ):
        click.echo(note)


def _cells(row: Row, listed: Listing) -> tuple[str, ...]:
    choice = row.choice
    is_used, is_picked = choice.name == listed.used, row in listed.recommended
    mark = "*" if is_used else "+" if choice.path else ">" if is_picked else ""
    return (
        mark,
        choice.name,
        _size(choice.size_bytes),
        _short_context(choice.context_tokens),
        _short_speed(row.fit),
        {"exact": "anywhere", "bounded": "a window", "checkpoints": "saved points"}[choice.memory],
        "yes" if choice.has_mtp else "",
        choice.licence,
    )


def _short_speed(found: Fit) -> str:
    if not found.fits:
        return "too large"
    if not found.tokens_per_second:
        return "on the GPU"
    return found.speed.replace("about ", "~")


def _short_context(tokens: int) -> str:
    if not tokens:
        return "?"
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}k"


# ---- words -------------------------------------------------------------------------------------------------


def _context(choice: Choice) -> str:
    return f"{choice.context_tokens:,} tokens of context" if choice.context_tokens else "context not stated"


def _size(size_bytes: int) -> str:
    if size_bytes < 1e9:
        return f"{size_bytes / 1e6:,.0f} MB"
    return f"{size_bytes / 1e9:.{1 if size_bytes < 1e11 else 0}f} GB"


def _tilde(path: str | Path) -> str:
    home = str(Path.home())
    return f"~{str(path)[len(home) :]}" if str(path).startswith(f"{home}/") else str(path)


def _made(settings: Settings, choice: Choice) -> list[Path]:
    """Return weights that tuning has made from this model. They are removed with it."""
    card = find_card(settings, choice.name)
    return [path for path in tuned_files(settings, card) if path.suffix == ".gguf"] if card else []


def _loaded(settings: Settings) -> Sequence[str]:
    """Return the models that a running server has in memory."""
    from vivace.client.warm import read_status

    status = read_status(settings)
    return status.engine.loaded if status else []


def _programs() -> dict[str, str]:
    """Return which other program has a recommended model's files, by the model's name."""
    from vivace.models.adopting import find_all
    from vivace.models.hub.curated import CURATED
    from vivace.models.hub.listing import is_format

    return {
        model.name: found.program
        for found in find_all()
        for model in CURATED
        if found.repo.lower() == model.hub.repo.lower() and is_format(found.name, model.hub.wanted)
    }
