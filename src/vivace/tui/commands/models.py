"""The list of models in the terminal: what is here, what could be, and what this machine can run of it.

Owns its words, and the question before a large download. Does not download: the session does when it gets
ready for a model, and shows how far it is.
"""

import asyncio
from typing import TYPE_CHECKING

from vivace.config import Settings
from vivace.models.catalog import pinned
from vivace.models.choices import Choice, choices
from vivace.models.store import full_name
from vivace.tui.prompt.menu import Entry

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

DOWNLOAD = " download"  # after a model's name: the user has said yes to it


async def choose_model(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Use the model that is named, or list all. One that must be downloaded first is asked about."""
    settings = session.settings
    if not argument:
        entries = await asyncio.to_thread(_entries, settings)
        app.menu.open(entries, lambda name: app.run_command(f"/model {name}"), title="Model:")
        return
    name = full_name(settings, argument.removesuffix(DOWNLOAD))
    known = next((choice for choice in choices(settings) if choice.name == name), None)
    if known is None or known.path or pinned(name) or argument.endswith(DOWNLOAD):
        await app.use_model(name)
        return
    entries = [
        Entry(
            f"Download {known.size_bytes / 1e9:.1f} GB", f"{name}{DOWNLOAD}", await _facts(settings, known)
        ),
        Entry(f"Stay with {session.talk.model}", session.talk.model, "nothing is downloaded"),
    ]
    app.menu.open(entries, lambda chosen: app.run_command(f"/model {chosen}"), title=f"{known.title}:")


async def _facts(settings: Settings, choice: Choice) -> str:
    [(_, speed)] = await asyncio.to_thread(_speeds, settings, [choice])
    return f"licence {choice.licence}, {choice.context_tokens:,} tokens of context, {speed}"


def _entries(settings: Settings) -> list[Entry]:
    speeds = _speeds(settings, choices(settings))
    entries = [Entry(choice.name, choice.name, ", ".join(_words(choice, speed))) for choice, speed in speeds]
    return entries + [Entry(f"{name}/…", f"{name}/", "type /model NAME/MODEL") for name in settings.upstreams]


def _words(choice: Choice, speed: str) -> list[str]:
    here = "" if choice.path else f"to be fetched: {choice.size_bytes / 1e9:.1f} GB"
    return [word for word in (choice.purpose, speed, here) if word]


def _speeds(settings: Settings, listed: list[Choice]) -> list[tuple[Choice, str]]:
    """Return each model with how it would do on this machine, in words."""
    from vivace.engine.tuning.fit import fit, measured_speed, this_machine

    machine, context_tokens = this_machine(settings), settings.context_tokens
    return [
        (choice, fit(machine, choice, context_tokens, measured_speed(settings, choice.name)).words)
        for choice in listed
    ]
