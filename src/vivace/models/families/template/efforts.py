"""What a template takes for effort: the options that change what it writes, found by trying them.

Owns which of its variables those are, and which value each effort has. Knows no tokens.
"""

import contextlib
from typing import Any

from vivace.models.families.base import Effort
from vivace.models.families.template import probes
from vivace.models.families.template.frames import Frames
from vivace.models.families.template.probes import said
from vivace.models.families.template.sandbox import TemplateError

EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
QUICK: tuple[Effort, ...] = ("none", "minimal", "low")  # that do not think where thinking is on or off
_SWITCHES = ("enable_thinking", "thinking", "reasoning")
_LEVELS = ("reasoning_effort", "reasoning_strength", "thinking_effort", "effort")
_WORDS: dict[Effort, tuple[str, ...]] = {
    "none": ("none", "no_think", "minimal", "low"),
    "minimal": ("minimal", "low"),
    "low": ("low",),
    "medium": ("medium",),
    "high": ("high",),
    "xhigh": ("xhigh", "max", "high"),
}
_BUDGETS: dict[Effort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 4096,
    "high": 8192,
    "xhigh": 16384,
}
_MODES = {"thinking_mode": ("disabled", "enabled"), "thinking_option": ("off", "on")}


def efforts_of(frames: Frames) -> dict[Effort, dict[str, Any]]:
    """Return the options for each effort; none at all where the template takes none."""
    variables = frames.template.variables
    plain = _written(frames, {})
    found: dict[Effort, dict[str, Any]] = {effort: {} for effort in EFFORTS}
    for name in _SWITCHES:
        if name in variables and _differs(frames, plain, {name: False}, {name: True}):
            for effort in EFFORTS:
                found[effort][name] = effort not in QUICK
    for name, (off, on) in _MODES.items():
        if name in variables and _differs(frames, plain, {name: off}, {name: on}):
            for effort in EFFORTS:
                found[effort][name] = off if effort in QUICK else on
    for name in _LEVELS:
        if name not in variables or not _differs(frames, plain, {name: "low"}, {name: "high"}):
            continue
        for effort in EFFORTS:
            known = [word for word in _WORDS[effort] if _is_known(frames, {name: word}, word)]
            if known:
                found[effort][name] = known[0]
    if "thinking_budget" in variables and _differs(frames, plain, {"thinking_budget": 0}):
        for effort in EFFORTS:
            found[effort]["thinking_budget"] = _BUDGETS[effort]
    return found


def _written(frames: Frames, values: dict[str, Any]) -> str | None:
    chats = [said("system", probes.SYSTEM)] if frames.has_system else []
    with contextlib.suppress(TemplateError):
        return frames.render([*chats, said("user", probes.ASKED)], asks=True, values=values)
    return None


def _differs(frames: Frames, plain: str | None, *tried: dict[str, Any]) -> bool:
    return any(text is not None and text != plain for text in (_written(frames, values) for values in tried))


def _is_known(frames: Frames, values: dict[str, Any], word: str) -> bool:
    """Return whether the template takes a word: it neither refuses it nor treats it as any other."""
    text = _written(frames, values)
    if text is None:
        return False
    name = next(iter(values))
    other = _written(frames, {name: "otter"})
    return word in text or (text != other and f"{word}" in frames.template.source)
