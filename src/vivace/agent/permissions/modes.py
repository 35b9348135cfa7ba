"""The few modes that a person switches between, and what each of them means in words.

Owns their names and their order. Every mode is a policy; a task may have any other policy too. Does not
decide (`decision`): the overview asks the same function that decides about calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.permissions.decision import (
    CallForeignTool,
    Need,
    ReadPath,
    RunCommand,
    Situation,
    Verdict,
    WritePath,
    decide,
)
from vivace.agent.permissions.paths import Place
from vivace.agent.permissions.policy import Policy
from vivace.errors import UsageError


@dataclass(frozen=True)
class Mode:
    name: str
    policy: Policy
    help: str


MODES = (
    Mode("workspace", Policy("workspace-write", "on-request"), "writes files here, asks for anything else"),
    Mode("ask", Policy("workspace-write", "ask"), "asks before every change and every command"),
    Mode("read-only", Policy("read-only", "on-request"), "reads, and asks before it writes"),
    Mode("full", Policy("full", "on-request"), "writes anywhere; asks when it has read what is not yours"),
)
DEFAULT_MODE = MODES[0]


def mode_named(name: str) -> Mode:
    for mode in MODES:
        if mode.name == name:
            return mode
    known = ", ".join(mode.name for mode in MODES)
    raise UsageError(f"There is no permission mode {name!r}.", f"Modes: {known}.")


def mode_after(mode: Mode) -> Mode:
    """Return the next mode of the cycle."""
    return MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else DEFAULT_MODE


def mode_of(policy: Policy) -> Mode:
    """Return the mode with this policy; one without a name of its own if there is none."""
    known = (mode for mode in MODES if mode.policy == policy)
    return next(known, Mode("other", policy, "as another program has set it"))


def overview(policies: Sequence[Policy], *, has_sandbox: bool) -> list[tuple[str, Verdict]]:
    """Return what kinds of calls there are, each with the verdict on it. Nothing foreign was read yet."""
    inside = Place("a file", Path("/here/file"), is_inside=True, names=frozenset({"file"}))
    outside = Place("a file", Path("/there/file"), is_inside=False, names=frozenset({"file"}))
    kinds: list[tuple[str, Need]] = [
        ("read a file here", ReadPath(inside)),
        ("read a file elsewhere", ReadPath(outside)),
        ("write a file here", WritePath(inside)),
        ("write a file elsewhere", WritePath(outside)),
        ("run a command in the sandbox", RunCommand("…")),
        ("run a command outside of it", RunCommand("…", leaves_sandbox=True)),
        ("call a tool of an MCP server", CallForeignTool("It")),
    ]
    situation = Situation(is_tainted=False, has_sandbox=has_sandbox)
    return [(what, decide([need], policies, situation)) for what, need in kinds]
