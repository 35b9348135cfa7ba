"""May a tool do this? Allow, ask a person, or refuse, with the reason. A pure function of values.

Owns the rules, in one table of code. The strictest of several opinions counts: each policy, each need. Does
not look at the file system (`paths`), ask anybody (`loop`) or build walls (`sandbox`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vivace.agent.permissions.paths import Place, protecting
from vivace.agent.permissions.policy import Policy

Kind = Literal["allow", "ask", "refuse"]
_STRICTNESS: dict[Kind, int] = {"allow": 0, "ask": 1, "refuse": 2}


@dataclass(frozen=True)
class Verdict:
    kind: Kind
    reason: str = ""  # of an ask or a refusal, in a sentence


@dataclass(frozen=True)
class ReadPath:
    place: Place


@dataclass(frozen=True)
class WritePath:
    place: Place


@dataclass(frozen=True)
class RunCommand:
    command: str
    leaves_sandbox: bool = False  # with the network, and with all files of the user


@dataclass(frozen=True)
class CallForeignTool:
    """A tool that is not ours, such as one of an MCP server: what it does is not known."""

    name: str
    arguments: str = ""  # a yes to one call is none to another


Need = ReadPath | WritePath | RunCommand | CallForeignTool


@dataclass(frozen=True)
class Situation:
    is_tainted: bool  # the model has read something that its user did not write
    has_sandbox: bool  # commands can be walled in on this machine


def decide(needs: Iterable[Need], policies: Sequence[Policy], situation: Situation) -> Verdict:
    """Return the strictest verdict on all needs of a call, by all policies. Without a policy: refuse."""
    if not policies:
        return Verdict("refuse", "There is no policy that would allow it.")
    verdicts = [_verdict(need, policy, situation) for need in needs for policy in policies]
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.kind], default=Verdict("allow"))


def can_be_kept(needs: Iterable[Need], situation: Situation) -> bool:
    """Return whether a yes may count for the same call later: never for what leaves the walls."""
    for need in needs:
        match need:
            case WritePath(place) | ReadPath(place) if not place.is_inside:
                return False
            case RunCommand(leaves_sandbox=leaves) if leaves or not situation.has_sandbox:
                return False
            case CallForeignTool():
                return False
    return True


def _verdict(need: Need, policy: Policy, situation: Situation) -> Verdict:
    match need:
        case ReadPath(place):
            return _read(place, policy)
        case WritePath(place):
            return _write(place, policy, situation)
        case RunCommand():
            return _run(need, policy, situation)
        case CallForeignTool(name=name):
            return _asked(policy, f"{name} is a tool of another program, which may do anything.")


def _read(place: Place, policy: Policy) -> Verdict:
    if place.is_inside or policy.access == "full":
        return Verdict("allow")
    return _asked(policy, f"{place.shown} is outside of the workspace ({place.path}).")


def _write(place: Place, policy: Policy, situation: Situation) -> Verdict:
    if name := protecting(place, policy.protected_names):
        return Verdict("refuse", f"{place.shown} is protected: nothing named {name} is ever written.")
    if place.links > 1:
        count = place.links
        return Verdict("refuse", f"{place.shown} has {count} names (hard links), and one may be protected.")
    if policy.access == "read-only":
        return _asked(policy, f"The access is read-only, and {place.shown} would be written.")
    if not place.is_inside:
        outside = f"{place.shown} is outside of the workspace ({place.path})."
        if policy.access != "full":
            return _asked(policy, outside)
        if situation.is_tainted:
            return _asked(policy, f"{outside} The model has read text that is not yours.")
    return _unless_all_is_asked(policy, f"{place.shown} would be written.")


# With these a line of the shell is shown as another one than is run, in some terminal or log.
_NEVER_IN_COMMANDS = {"\r": "a carriage return", "\x1b": "an escape character", "\0": "a NUL character"}


def _run(need: RunCommand, policy: Policy, situation: Situation) -> Verdict:
    if found := next((name for char, name in _NEVER_IN_COMMANDS.items() if char in need.command), ""):
        return Verdict("refuse", f"The command has {found} in it. Write it without: printf can make one.")
    if situation.has_sandbox and not need.leaves_sandbox:
        return _unless_all_is_asked(policy, "A command would be run in the sandbox.")
    why = "It asks to leave the sandbox: it could use the network, and all of your files."
    if not situation.has_sandbox:
        why = (
            "There is no sandbox on this machine (`vivace doctor` says how to get one): "
            "the command could use the network, and all of your files."
        )
    if policy.access != "full":
        return _asked(policy, why)
    if situation.is_tainted:
        return _asked(policy, f"{why} The model has read text that is not yours.")
    return _unless_all_is_asked(policy, why)


def _asked(policy: Policy, reason: str) -> Verdict:
    """Return the verdict on what the access does not cover."""
    if policy.asking == "never":
        return Verdict("refuse", f"{reason} The mode says never to ask.")
    return Verdict("ask", reason)


def _unless_all_is_asked(policy: Policy, reason: str) -> Verdict:
    """Return the verdict on what the access covers."""
    return Verdict("ask", reason) if policy.asking == "ask" else Verdict("allow")
