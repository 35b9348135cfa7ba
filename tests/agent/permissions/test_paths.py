"""Where a path leads, through links and spellings, and what is protected on every way there."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.permissions.decision import Situation, Verdict, WritePath, decide
from vivace.agent.permissions.paths import PROTECTED, locate, normalized
from vivace.agent.permissions.policy import Policy
from vivace.errors import FileProblem

SITUATION = Situation(is_tainted=False, has_sandbox=True)
IGNORED = ["", "\u200c", "\u200d", "\ufeff", "\u2060"]
names = st.text(
    st.characters(whitelist_categories=["Ll", "Lu", "Nd"], max_codepoint=0x7F), min_size=1, max_size=8
)


def write(root: Path, path: str, policy: Policy | None = None) -> Verdict:
    return decide([WritePath(locate(root, path))], [policy or Policy("full", "never")], SITUATION)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@given(data=st.data(), above=st.lists(names, max_size=3), below=st.lists(names, max_size=3))
def test_a_protected_name_is_refused_in_every_spelling(
    shared_root: Path, data: st.DataObject, above: list[str], below: list[str]
) -> None:
    """At any depth, in any case, with characters that some file system ignores, and though it is missing."""
    name = data.draw(st.sampled_from(sorted(PROTECTED)))
    spelled = "".join(
        data.draw(st.sampled_from([each, each.upper()])) + data.draw(st.sampled_from(IGNORED))
        for each in name
    )
    detour = data.draw(st.sampled_from(["", "./", "x/../", f"{'.' * 2}/{shared_root.name}/"]))
    path = detour + "/".join([*above, spelled, *below])
    assert write(shared_root, path).kind == "refuse"


@pytest.mark.parametrize(
    "path", ["HEAD", "config", "config.worktree", "commondir", "hooks/post-checkout", "x/../hooks/deep/er"]
)
def test_what_git_would_take_for_a_repository_is_not_made_or_changed(root: Path, path: str) -> None:
    """A folder is one by its content, whatever its name: no HEAD is written, and no setting beside one."""
    assert write(root, f"pkg/{path}").kind == ("refuse" if path == "HEAD" else "allow")
    (root / "pkg").mkdir()
    (root / "pkg" / "HEAD").write_text("ref: refs/heads/main\n")
    assert write(root, f"pkg/{path}").kind == "refuse"
    assert write(root, f"pkg/src/{path}").kind == ("refuse" if path == "HEAD" else "allow")
    assert write(root, "pkg/description").kind == "allow"


@given(st.lists(names, min_size=1, max_size=4))
def test_an_ordinary_path_is_not_protected(shared_root: Path, parts: list[str]) -> None:
    """Names that only resemble protected ones are written."""
    assert write(shared_root, "/".join(parts)) == Verdict("allow")
    assert write(shared_root, "/".join([*parts, ".gitignore"])) == Verdict("allow")


@given(st.text(max_size=20))
def test_normalized_twice_is_as_once(name: str) -> None:
    """Two spellings of one name do not become three."""
    assert normalized(normalized(name)) == normalized(name)


def test_a_link_to_a_protected_folder_is_refused(root: Path) -> None:
    """The way through another name is no way."""
    (root / ".git").mkdir()
    (root / "innocent").symlink_to(".git")
    assert write(root, "innocent/config").kind == "refuse"


def test_where_a_protected_link_leads_is_protected(root: Path) -> None:
    """A `.git` that is a link, or Git's file that names a folder, protects what it stands for."""
    (root / "real").mkdir()
    (root / ".git").symlink_to("real")
    assert write(root, "real/config").kind == "refuse"
    (root / ".git").unlink()
    (root / ".git").write_text("gitdir: ./real\n")
    assert write(root, "real/hooks/pre-commit").kind == "refuse"
    assert write(root, "other/config").kind == "allow"


def test_a_file_with_another_name_is_refused(root: Path) -> None:
    """A hard link may be the other name of a protected file."""
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("")
    os.link(root / ".git" / "config", root / "notes.txt")
    verdict = write(root, "notes.txt")
    assert (verdict.kind, "hard links" in verdict.reason) == ("refuse", True)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "link/x", "deep/../link/x"])
def test_a_path_out_of_the_workspace_is_seen(root: Path, path: str) -> None:
    """By dots, from the root, or through a link."""
    (root / "link").symlink_to("/usr")
    (root / "deep").mkdir()
    assert not locate(root, path).is_inside
    assert write(root, path, Policy("workspace-write", "on-request")).kind == "ask"
    assert write(root, path, Policy("workspace-write", "never")).kind == "refuse"


def test_a_link_that_stays_inside_is_inside(root: Path) -> None:
    """What is written is the file that the link leads to."""
    (root / "a").write_text("")
    (root / "b").symlink_to("a")
    place = locate(root, "b")
    assert (place.is_inside, place.path) == (True, root / "a")


def test_the_workspace_may_itself_be_in_a_protected_folder(tmp_path: Path) -> None:
    """Only the parts below it count."""
    root = tmp_path / ".vivace" / "tasks" / "one"
    root.mkdir(parents=True)
    assert write(root, "a.py").kind == "allow"
    assert write(root, "../other/a.py").kind == "refuse"


@pytest.mark.parametrize("path", ["loop/x", "x" * 5000])
def test_a_path_that_cannot_be_is_no_crash(root: Path, path: str) -> None:
    """A circle of links, or a name that is too long, leads somewhere all the same."""
    (root / "loop").symlink_to("loop")
    assert locate(root, path).shown == path


def test_a_path_with_a_nul_is_no_path(root: Path) -> None:
    """It is refused by name."""
    with pytest.raises(FileProblem, match="NUL"):
        locate(root, "a\0b")
