"""Patches and edits with any text and any path: what is allowed is written, and taken back to the byte."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.tools.workbench import context_for
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.permissions.decision import Situation, decide
from vivace.agent.tools.apply_patch import ApplyPatch
from vivace.agent.tools.base import Tool
from vivace.agent.tools.edit import Edit
from vivace.errors import VivaceError

PATHS = st.sampled_from(
    [
        *("a.py", "sub/b.py", "new.py", "sub/deep/new.py", "./a.py", "sub/../a.py", "sub/link/b.py", "file"),
        *("../outside/x", "sub/out/x", "sub/out", "sub/out/../x", ".git/hooks/x", ".GIT/x", "sub/hooks/x"),
        *(".envrc", "sub/.vscode/x", ".git\u200d/x", ".ｇit/x", "", ".", "..", "sub", "n" * 300, "a.py/x"),
        *("\0", "a\0b", "/", "/proc/self/mem", "\ud800", "é", " ", "-", "a\nb", "~/x"),
    ]
)
LINES = st.text("ab =\t\\'\"é\ufeff\u2028\r\0", max_size=6) | st.sampled_from(
    ["x = 1", "y = 2", "def f():", ""]
)
TEXTS = st.lists(LINES, max_size=4).map("\n".join) | st.text(max_size=20)
MARKS = st.sampled_from(
    ["@@", "@@ def f():", "*** End of File", "*** End Patch", "*** Begin Patch", "***", "\\ No newline"]
)


@st.composite
def patches(draw: st.DrawFn) -> str:
    """Draw a patch that is mostly in the format."""
    lines = ["*** Begin Patch"]
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["Add", "Update", "Delete"]))
        lines.append(f"*** {kind} File: {draw(PATHS)}")
        if kind == "Update" and draw(st.booleans()):
            lines.append(f"*** Move to: {draw(PATHS)}")
        for _ in range(draw(st.integers(0, 5))):
            is_mark = draw(st.integers(0, 4)) == 0
            lines.append(draw(MARKS) if is_mark else draw(st.sampled_from(" +-")) + draw(LINES))
    return "\n".join([*lines, draw(st.sampled_from(["*** End Patch", "*** End Patch", ""]))])


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name))
        for each in ("work/sub", "work/.git/hooks", "outside"):
            (top / each).mkdir(parents=True)
        (top / "outside" / "x").write_text("x = 1\n")
        (top / "work" / "a.py").write_text("x = 1\ny = 2\n\ndef f():\n    return 1\n")
        (top / "work" / "sub" / "b.py").write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\rz")
        (top / "work" / "file").write_bytes(b"\0\xff")
        (top / "work" / "sub" / "out").symlink_to(top / "outside")
        (top / "work" / "sub" / "link").symlink_to(".")
        (top / "work" / "sub" / "hooks").symlink_to("../.git/hooks")
        yield top


def files_of(top: Path) -> dict[str, bytes]:
    """Return all files, with links as what they are."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            if "journal" not in path.relative_to(top).parts[:1]:
                found[str(path)] = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    return found


def apart(files: dict[str, bytes], top: Path) -> dict[str, bytes]:
    """Return those that no call may change."""
    protected = (".git", ".GIT", ".vscode", ".envrc", "outside")
    return {
        path: data for path, data in files.items() if set(protected) & set(Path(path).relative_to(top).parts)
    }


async def check(tool: Tool, *given: str) -> None:
    """Do these calls as a turn does: those that are allowed. Then take the entry back."""
    with workspace() as top:
        before = files_of(top)
        context, journal = context_for(top / "work"), Journal(top / "journal", top / "work")
        for each in given:
            with contextlib.suppress(VivaceError):
                parsed = tool.parse(each)
                assert isinstance(tool.title(parsed), str)
                needs = tool.needs(parsed, context)
                if (
                    decide(needs, context.policies, Situation(is_tainted=False, has_sandbox=True)).kind
                    == "allow"
                ):
                    await tool.run(parsed, context, needs)
        with contextlib.suppress(VivaceError):
            written, _ = await context.writes.flush(journal, "test")
            after = files_of(top)
            assert apart(after, top) == apart(before, top)
            if written is not None:
                journal.undo()
        assert files_of(top) == before


@pytest.mark.fuzz
@given(st.lists(patches() | st.text(max_size=40), min_size=1, max_size=3))
async def test_any_patch_is_taken_or_told_and_taken_back(given: list[str]) -> None:
    """It changes files of the workspace that are not protected, or says why not."""
    await check(ApplyPatch(), *given)


@pytest.mark.fuzz
@given(st.lists(st.tuples(PATHS, TEXTS, TEXTS, st.booleans()), min_size=1, max_size=4))
async def test_any_edit_is_taken_or_told_and_taken_back(given: list[tuple[str, str, str, bool]]) -> None:
    """Whatever path it names and whatever texts."""
    names = ("path", "old_text", "new_text", "replace_all")
    await check(Edit(), *(json.dumps(dict(zip(names, each, strict=True))) for each in given))
