"""What a session can be set to from the editor: permission mode, model and effort.

Owns their names on the wire. Editors of either kind are served: modes alone, and options, of which the mode
is one. Does not own what the settings do (`session`).
"""

from acp.schema import (
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from vivace.agent.effort import EFFORTS, Effort
from vivace.agent.permissions.modes import MODES, Mode
from vivace.config import Settings
from vivace.errors import UsageError
from vivace.models.choices import choices

MODE, MODEL, EFFORT = "mode", "model", "effort"
EFFORT_WORDS: dict[Effort, str] = {
    "low": "the first answer",
    "medium": "others where the first is no good",
    "high": "several answers compared",
    "xhigh": "many answers compared",
}


def mode_state(mode: Mode) -> SessionModeState:
    modes = [SessionMode(id=each.name, name=each.name, description=each.help) for each in _with(mode)]
    return SessionModeState(current_mode_id=mode.name, available_modes=modes)


def config_options(
    mode: Mode, model: str, effort: Effort, models: list[str]
) -> list[SessionConfigOptionSelect]:
    """Return all options with their values now. An editor gets all of them whenever one changes."""
    named = list(dict.fromkeys([model, *models]))
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Permissions",
            category="mode",
            current_value=mode.name,
            options=[
                SessionConfigSelectOption(value=each.name, name=each.name, description=each.help)
                for each in _with(mode)
            ],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=name, name=name) for name in named],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=EFFORT,
            name="Effort",
            category="thought_level",
            current_value=effort,
            options=[
                SessionConfigSelectOption(value=each, name=each, description=EFFORT_WORDS[each])
                for each in EFFORTS
            ],
        ),
    ]


def _with(mode: Mode) -> list[Mode]:
    """Return the modes; with this one, where another face has set one that has no name."""
    return [*MODES, *([mode] if mode not in MODES else [])]


def models_here(settings: Settings) -> list[str]:
    """Return the models that can answer without a download, the default first."""
    return [settings.model, *(choice.name for choice in choices(settings) if choice.path)]


def effort_named(value: str) -> Effort:
    for effort in EFFORTS:
        if effort == value:
            return effort
    raise UsageError(f"There is no effort {value!r}.", f"Efforts: {', '.join(EFFORTS)}.")
