"""The modes that a person switches between."""

import pytest

from vivace.agent.permissions.modes import DEFAULT_MODE, MODES, mode_after, mode_named, overview
from vivace.agent.permissions.policy import Policy
from vivace.errors import UsageError


def verdicts(*policies: Policy, has_sandbox: bool = True) -> dict[str, str]:
    return {what: verdict.kind for what, verdict in overview(policies, has_sandbox=has_sandbox)}


def test_the_cycle_comes_back_to_where_it_began() -> None:
    """Every mode is reached once, and the default follows the last one."""
    mode, seen = DEFAULT_MODE, []
    for _ in MODES:
        seen.append(mode)
        mode = mode_after(mode)
    assert set(seen) == set(MODES)
    assert mode is DEFAULT_MODE


def test_no_mode_leaves_the_sandbox_or_calls_strangers_unasked_but_full() -> None:
    """Only full access runs commands outside of the sandbox; tools of other programs always ask."""
    for mode in MODES:
        found = verdicts(mode.policy)
        assert found["call a tool of an MCP server"] == "ask"
        assert (found["run a command outside of it"] == "allow") == (mode.name == "full")


def test_a_project_tightens_every_mode() -> None:
    """With a project that says read-only and never, no mode may write."""
    project = Policy("read-only", "never")
    for mode in MODES:
        assert verdicts(mode.policy, project)["write a file here"] == "refuse"


def test_without_a_sandbox_commands_ask() -> None:
    """In every mode but full."""
    for mode in MODES:
        found = verdicts(mode.policy, has_sandbox=False)["run a command in the sandbox"]
        assert (found == "ask") == (mode.name != "full")


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    """The hint lists all names."""
    with pytest.raises(UsageError) as caught:
        mode_named("wild")
    assert all(mode.name in caught.value.hint for mode in MODES)
