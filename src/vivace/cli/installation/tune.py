"""Tuning in the foreground, as a person sees it: `vivace doctor --tune`.

Owns the words and the table. Does not measure or choose: `engine.tuning` does, and is imported only when it
is needed. Does not tune by itself: the server does, when it is idle (`server.tuning`).
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivace.config import Settings
    from vivace.engine.tuning.profile import Profile
    from vivace.engine.tuning.search.choose import Measured

BUSY_SHARE = 0.3  # of the CPUs used by others: then we say that the machine was busy


def tune_now(settings: "Settings", *, with_costly: bool, as_json: bool) -> None:
    """`vivace doctor --tune`: measure, whatever was decided before."""
    import click
    import msgspec

    from vivace.cli.installation.fetching import fetch_model
    from vivace.errors import UsageError
    from vivace.models.store import model_path

    settings = settings.having(tune="auto")  # asked for now
    fetch_model(settings)
    path = model_path(settings, settings.model)
    if path.is_dir():
        raise UsageError(
            f"{settings.model} is a folder of safetensors, which runs on a GPU: nothing is to be tuned.",
            "Tuning is for .gguf files on the CPU.",
        )
    profile = _tuned(settings, path, with_costly=with_costly)
    if as_json:
        click.echo(msgspec.json.encode(profile))
        return
    for line in [*table(profile), "", profile.why, *_remarks(profile)]:
        click.echo(line)
    _mention_server(settings)


def _tuned(settings: "Settings", path: Path, *, with_costly: bool) -> "Profile":
    from vivace.cli.show.progress import TerminalProgress
    from vivace.engine.tuning.search.host import Host
    from vivace.engine.tuning.tune import tune

    host = Host(progress=TerminalProgress())
    return tune(settings, settings.model, path, host, with_costly=with_costly)


def _mention_server(settings: "Settings") -> None:
    from vivace.client.warm import find_server

    if find_server(settings):
        _say("The server that runs now goes on as before; `vivace stop`, and the next one takes it up.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# The table -----------------------------------------------------------------------------------------------


def table(profile: "Profile") -> list[str]:
    """Return a line for each variant that was looked at. * marks the one that is used from now on."""
    head = ("", "WEIGHTS", "SIZE", "PREFILL", "DECODE", "16 AT ONCE", "AN EDIT", "")
    rows = [head, *(_row(entry, is_chosen=_is_chosen(entry, profile)) for entry in profile.entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    left = (0, 1, 7)
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _row(entry: "Measured", *, is_chosen: bool) -> tuple[str, ...]:
    from statistics import median

    from vivace.engine.tuning.search.choose import PREFILL_TOKENS, step_costs, typical_edit_ms

    variant = entry.variant
    label, size = f"{variant.label}, {variant.threads} threads", f"{variant.size_bytes / 1e9:.2f} GB"
    if not entry.rounds:
        return "", label, size, "", "", "", "", _note(entry)
    costs = step_costs(entry.rounds)
    prefill = PREFILL_TOKENS / median(taken.prefill_ms for taken in entry.rounds) * 1e3
    speed = (f"{prefill:.0f} tok/s", f"{1e3 / costs[1]:.1f} tok/s", f"{costs[16]:.0f} ms")
    edit = f"{typical_edit_ms(entry.rounds) / 1e3:.2f} s"
    return "*" if is_chosen else "", label, size, *speed, edit, _note(entry)


def _note(entry: "Measured") -> str:
    likeness = entry.likeness
    notes = [entry.problem, entry.dropped]
    notes += [f"differs by {likeness.mean_change:.3f} nats a token"] if likeness and not entry.problem else []
    notes += ["costs quality: never chosen"] if entry.variant.quality == "costly" else []
    return "; ".join(filter(None, notes))


def _is_chosen(entry: "Measured", profile: "Profile") -> bool:
    variant = entry.variant
    file = Path(variant.path).name if variant.is_made else ""
    ways = (file, variant.use_extra_bufts, variant.threads)
    return ways == (profile.made_file, profile.use_extra_bufts, profile.threads)


def _remarks(profile: "Profile") -> list[str]:
    chunks = f"; prompts are read {profile.chunk_tokens} tokens at a time" if profile.chunk_tokens else ""
    remarks = [f"{profile.threads} threads{chunks}."]
    if profile.busy_share > BUSY_SHARE:
        busy = f"The machine was busy ({profile.busy_share:.0%} of its CPUs)"
        remarks.append(f"{busy}: measure again when it is quiet.")
    return remarks
