"""The table of permissions, and that no project can loosen it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.permissions.decision import (
    CallForeignTool,
    Need,
    ReadPath,
    RunCommand,
    Situation,
    WritePath,
    decide,
)
from vivace.agent.permissions.paths import Place
from vivace.agent.permissions.policy import (
    ACCESSES,
    ASKINGS,
    PROJECT_FILE,
    Access,
    Asking,
    Policy,
    project_policy,
)
from vivace.errors import ConfigError

STRICTNESS = {"allow": 0, "ask": 1, "refuse": 2}
INSIDE = Place("a.py", Path("/w/a.py"), is_inside=True, names=frozenset({"a.py"}))
OUTSIDE = Place("../b.py", Path("/b.py"), is_inside=False, names=frozenset({"b.py"}))
GIT = Place(".git/config", Path("/w/.git/config"), is_inside=True, names=frozenset({".git", "config"}))

policies = st.builds(
    Policy,
    st.sampled_from(ACCESSES),
    st.sampled_from(ASKINGS),
    st.lists(st.sampled_from(["a.py", "b.py", "secrets"]), max_size=2).map(tuple),
)
places = st.sampled_from([INSIDE, OUTSIDE, GIT])
needs: st.SearchStrategy[Need] = st.one_of(
    st.builds(ReadPath, places),
    st.builds(WritePath, places),
    st.builds(RunCommand, st.just("make"), st.booleans()),
    st.builds(CallForeignTool, st.just("mcp__x")),
)
situations = st.builds(Situation, st.booleans(), st.booleans())


@given(st.lists(needs, max_size=3), policies, policies, situations)
def test_a_project_never_loosens(
    asked: list[Need], user: Policy, project: Policy, situation: Situation
) -> None:
    """Whatever its policy says, the verdict is at least as strict as the user's alone."""
    alone = decide(asked, [user], situation)
    both = decide(asked, [user, project], situation)
    assert STRICTNESS[both.kind] >= STRICTNESS[alone.kind]


@given(st.lists(needs, max_size=3), policies, st.booleans())
def test_untrusted_text_never_loosens(asked: list[Need], policy: Policy, has_sandbox: bool) -> None:
    """A tainted task may at most what a fresh one may."""
    fresh = decide(asked, [policy], Situation(is_tainted=False, has_sandbox=has_sandbox))
    tainted = decide(asked, [policy], Situation(is_tainted=True, has_sandbox=has_sandbox))
    assert STRICTNESS[tainted.kind] >= STRICTNESS[fresh.kind]


@given(policies, situations)
def test_what_is_protected_is_always_refused(policy: Policy, situation: Situation) -> None:
    """Full access does not help."""
    assert decide([WritePath(GIT)], [policy], situation).kind == "refuse"


@given(policies, st.booleans())
def test_after_untrusted_text_the_network_and_the_outside_are_never_silent(
    policy: Policy, has_sandbox: bool
) -> None:
    """A person says yes, or it does not happen."""
    situation = Situation(is_tainted=True, has_sandbox=has_sandbox)
    for need in (WritePath(OUTSIDE), RunCommand("curl", leaves_sandbox=True), CallForeignTool("mcp__x")):
        assert decide([need], [policy], situation).kind != "allow"


@given(st.sampled_from(ACCESSES[:2]), st.sampled_from(ASKINGS), st.booleans())
def test_no_sandbox_is_never_silent(access: Access, asking: Asking, is_tainted: bool) -> None:
    """Without bubblewrap each command is asked for or refused, unless the user gave full access."""
    situation = Situation(is_tainted=is_tainted, has_sandbox=False)
    verdict = decide([RunCommand("make")], [Policy(access, asking)], situation)
    assert verdict.kind == ("refuse" if asking == "never" else "ask")


@given(needs, policies, situations)
def test_whoever_is_never_asked_is_never_asked(need: Need, policy: Policy, situation: Situation) -> None:
    """The mode `never` has two verdicts; each that is no allowance gives its reason."""
    verdict = decide([need], [policy], situation)
    assert verdict.kind != "ask" or policy.asking != "never"
    assert bool(verdict.reason) == (verdict.kind != "allow")


@pytest.mark.parametrize(
    ("access", "asking", "need", "kind"),
    [
        ("read-only", "on-request", ReadPath(INSIDE), "allow"),
        ("read-only", "never", WritePath(INSIDE), "refuse"),
        ("read-only", "on-request", WritePath(INSIDE), "ask"),
        ("read-only", "never", RunCommand("ls"), "allow"),
        ("workspace-write", "on-request", WritePath(INSIDE), "allow"),
        ("workspace-write", "ask", WritePath(INSIDE), "ask"),
        ("workspace-write", "ask", ReadPath(INSIDE), "allow"),
        ("workspace-write", "never", WritePath(OUTSIDE), "refuse"),
        ("workspace-write", "on-request", ReadPath(OUTSIDE), "ask"),
        ("workspace-write", "on-request", RunCommand("make"), "allow"),
        ("workspace-write", "on-request", RunCommand("curl", leaves_sandbox=True), "ask"),
        ("full", "never", WritePath(OUTSIDE), "allow"),
        ("full", "ask", WritePath(OUTSIDE), "ask"),
        ("full", "never", RunCommand("curl", leaves_sandbox=True), "allow"),
    ],
)
def test_the_table(access: Access, asking: Asking, need: Need, kind: str) -> None:
    """With a sandbox, before anything was read."""
    situation = Situation(is_tainted=False, has_sandbox=True)
    assert decide([need], [Policy(access, asking)], situation).kind == kind


def test_without_a_policy_nothing_is_allowed() -> None:
    """A mistake of ours is no permission."""
    assert decide([], [], Situation(is_tainted=False, has_sandbox=True)).kind == "refuse"


def test_a_project_has_a_file(tmp_path: Path) -> None:
    """It is read if it is there, and one that cannot be understood is an error, not a shrug."""
    assert project_policy(tmp_path) is None
    file = tmp_path / PROJECT_FILE
    file.parent.mkdir()
    file.write_text('access = "read-only"\nprotected = ["Secrets"]\n')
    policy = project_policy(tmp_path)
    assert policy is not None
    assert (policy.access, "secrets" in policy.protected_names) == ("read-only", True)
    for wrong in ('access = "everything"', "allow = true", "access = ["):
        file.write_text(wrong)
        with pytest.raises(ConfigError):
            project_policy(tmp_path)
