"""Tools that change files: what is staged, what is written as one entry, and what is refused."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.tools.workbench import call, context_for, flush
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.tools.apply_patch import ApplyPatch, patched
from vivace.agent.tools.base import MalformedCall, ToolContext
from vivace.agent.tools.edit import Edit
from vivace.agent.tools.patch_format import Chunk, UpdateFile, parse_patch
from vivace.agent.tools.plan import UpdatePlan
from vivace.errors import EditConflict, EditRejected, FileProblem, WriteProblem

PATCH = """*** Begin Patch
*** Update File: a.py
@@ def second():
-    return 2
+    return 22
*** Add File: new/b.py
+x = 1
+
*** Delete File: gone.py
*** Update File: old.py
*** Move to: moved.py
@@
 keep
-drop
*** End Patch"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


class TestEdit:
    async def test_edits_of_a_turn_are_one_entry(
        self, root: Path, context: ToolContext, journal: Path
    ) -> None:
        """The second builds on the first, nothing is on disk before, and one undo takes all back."""
        (root / "a.py").write_text("x = 1\ny = 2\n")
        await call(Edit(), context, path="a.py", old_text="x = 1", new_text="x = 10")
        result = await call(Edit(), context, path="a.py", old_text="x = 10\ny", new_text="x = 11\ny")
        assert result.output == "a.py: found exactly, at lines 1-2. It is replaced."
        await call(Edit(), context, path="sub/new.py", old_text="", new_text="z = 3\n")
        assert (root / "a.py").read_text() == "x = 1\ny = 2\n"
        await flush(context, journal)
        assert (root / "a.py").read_text() == "x = 11\ny = 2\n"
        assert (root / "sub" / "new.py").read_text() == "z = 3\n"
        Journal(journal).undo()
        assert (root / "a.py").read_text() == "x = 1\ny = 2\n"
        assert not (root / "sub" / "new.py").exists()

    async def test_line_ends_and_the_rest_stay(self, root: Path, context: ToolContext, journal: Path) -> None:
        """A file with other line ends, a byte order mark and no final newline keeps them."""
        (root / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
        await call(Edit(), context, path="a", old_text="two\nthree", new_text="2\nhalf\n3")
        await flush(context, journal)
        assert (root / "a").read_bytes() == b"\xef\xbb\xbfone\r\n2\r\nhalf\r\n3"

    async def test_all_occurrences_may_be_replaced(
        self, root: Path, context: ToolContext, journal: Path
    ) -> None:
        """Only exact ones."""
        (root / "a").write_text("a b a\nc\na\n")
        result = await call(Edit(), context, path="a", old_text="a", new_text="x", replace_all=True)
        await flush(context, journal)
        assert (root / "a").read_text() == "x b x\nc\nx\n"
        assert "3 exact occurrences" in result.output

    async def test_what_cannot_be_done_is_told(self, root: Path, context: ToolContext) -> None:
        """And nothing is staged."""
        (root / "a").write_text("x\n")
        for arguments, problem in (
            ({"path": "a", "old_text": "", "new_text": "y"}, "exists already"),
            ({"path": "a", "old_text": "x", "new_text": "x"}, "the same"),
            ({"path": "a", "old_text": "qqqqqq", "new_text": "y"}, "not in the file"),
            ({"path": "a", "old_text": "q", "new_text": "y", "replace_all": True}, "exactly"),
        ):
            with pytest.raises(EditRejected, match=problem):
                await call(Edit(), context, **arguments)
        with pytest.raises(FileProblem, match="does not exist"):
            await call(Edit(), context, path="b", old_text="x", new_text="y")
        assert context.writes.changes() == []

    @given(
        before=st.text("ab\n", max_size=8),
        old=st.text("xy\n", min_size=1, max_size=5).filter(lambda text: text.strip("\n") == text),
        new=st.text("pq\n", max_size=5).filter(lambda text: text.strip("\n") == text),
        after=st.text("ab\n", max_size=8),
    )
    async def test_an_exact_edit_is_a_replacement(
        self, tmp_path_factory: pytest.TempPathFactory, before: str, old: str, new: str, after: str
    ) -> None:
        """Whatever stands around it, the file is as a plain replacement would make it."""
        root = tmp_path_factory.mktemp("work")
        context = context_for(root)
        (root / "a").write_text(text := f"{before}{old}{after}\n")
        await call(Edit(), context, path="a", old_text=old, new_text=new)
        (change,) = context.writes.changes()
        assert change.new_bytes.decode() == text.replace(old, new)


class TestRaces:
    async def test_a_folder_that_becomes_a_link_is_not_written_through(
        self, root: Path, context: ToolContext, journal: Path, tmp_path: Path
    ) -> None:
        """Between the permission and the write, the way may have been turned elsewhere."""
        (root / "sub").mkdir()
        (root / "sub" / "a").write_text("x\n")
        await call(Edit(), context, path="sub/a", old_text="x", new_text="evil")
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "a").write_text("x\n")
        (root / "sub").rename(root / "old")
        (root / "sub").symlink_to(tmp_path / "target")
        with pytest.raises(WriteProblem, match="leads elsewhere"):
            await flush(context, journal)
        assert (tmp_path / "target" / "a").read_text() == "x\n"
        assert (root / "old" / "a").read_text() == "x\n"

    async def test_a_change_of_somebody_else_is_kept(
        self, root: Path, context: ToolContext, journal: Path
    ) -> None:
        """Both changes are in the file, or it is a conflict and nothing is written."""
        (root / "a").write_text("1\n2\n3\n4\n5\n")
        await call(Edit(), context, path="a", old_text="1", new_text="one")
        (root / "a").write_text("1\n2\n3\n4\nfive\n")
        await flush(context, journal)
        assert (root / "a").read_text() == "one\n2\n3\n4\nfive\n"
        await call(Edit(), context, path="a", old_text="one", new_text="uno")
        (root / "a").write_text("eins\n2\n3\n4\nfive\n")
        with pytest.raises(EditConflict):
            await flush(context, journal)
        assert (root / "a").read_text() == "eins\n2\n3\n4\nfive\n"


class TestPatch:
    async def test_a_patch_changes_several_files(
        self, root: Path, context: ToolContext, journal: Path
    ) -> None:
        """Updates, additions, removals and moves are one entry."""
        (root / "a.py").write_text("def first():\n    return 2\n\n\ndef second():\n    return 2\n")
        (root / "gone.py").write_text("x\n")
        (root / "old.py").write_text("keep\ndrop\n")
        result = await call(ApplyPatch(), context, PATCH)
        assert result.output.split("\n") == [
            *("Updated a.py.", "Added new/b.py.", "Deleted gone.py.", "Moved old.py to moved.py.")
        ]
        await flush(context, journal)
        assert (root / "a.py").read_text().endswith("def second():\n    return 22\n")
        assert "return 2\n" in (root / "a.py").read_text()
        assert (root / "new" / "b.py").read_text() == "x = 1\n\n"
        assert (root / "moved.py").read_text() == "keep\n"
        assert not (root / "gone.py").exists()
        assert not (root / "old.py").exists()
        Journal(journal).undo()
        assert (root / "gone.py").exists()
        assert not (root / "moved.py").exists()

    async def test_one_chunk_that_fits_nowhere_refuses_all(self, root: Path, context: ToolContext) -> None:
        """Nothing of the patch is staged, and the chunk is shown."""
        (root / "a").write_text("x\n")
        patch = "*** Begin Patch\n*** Add File: b\n+1\n*** Update File: a\n@@\n-nowhere\n+y\n*** End Patch"
        with pytest.raises(EditRejected, match="Chunk 1: these lines are not in the file:\nnowhere"):
            await call(ApplyPatch(), context, patch)
        assert context.writes.changes() == []

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("", "has no line '\\*\\*\\* Begin Patch'"),
            ("*** Begin Patch\n*** Update File: a\n-x", "cut off"),
            ("*** Begin Patch\n*** End Patch", "changes no file"),
            ("*** Begin Patch\nhello\n*** End Patch", "Line 2 of the patch: 'hello' does not begin a file"),
            ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "Line 3 .* does not begin with '\\+'"),
            ("*** Begin Patch\n*** Update File: a\n@@\n?x\n*** End Patch", "Line 4 .* neither"),
            ("*** Begin Patch\n*** Delete File: \n*** End Patch", "there is no path"),
        ],
    )
    def test_a_patch_that_cannot_be_read_is_a_wrong_call(self, text: str, fault: str) -> None:
        """The line and what is wrong with it are told."""
        with pytest.raises(MalformedCall, match=fault):
            ApplyPatch().parse(text)

    def test_a_heredoc_or_a_fence_around_it_is_passed_over(self) -> None:
        """As models write them."""
        inner = "*** Begin Patch\n*** Delete File: a\n*** End Patch"
        for text in (
            f"apply_patch <<'EOF'\n{inner}\nEOF\n",
            f"```\n{inner}\n```",
            inner.replace("\n", "\r\n"),
        ):
            assert [patch.path for patch in parse_patch(text)] == ["a"]

    @given(st.text("*+-@ ab\n", max_size=80))
    def test_no_text_breaks_the_parser(self, text: str) -> None:
        """It is a patch, or the fault is told."""
        with suppress(EditRejected):
            assert parse_patch(f"*** Begin Patch\n*** Update File: a\n{text}\n*** End Patch")

    @given(
        st.lists(st.text("abc ", min_size=1, max_size=4), min_size=1, max_size=12, unique_by=str.strip),
        st.data(),
    )
    def test_a_patch_made_from_two_texts_leads_from_one_to_the_other(
        self, old: list[str], data: st.DataObject
    ) -> None:
        """A chunk with its lines around it lands where it belongs."""
        first = data.draw(st.integers(0, len(old) - 1))
        last = data.draw(st.integers(first, len(old) - 1))
        new = data.draw(st.lists(st.text("xyz", min_size=1, max_size=3), max_size=4))
        before, behind = old[max(0, first - 2) : first], old[last + 1 : last + 3]
        body = [*(f" {line}" for line in before), *(f"-{line}" for line in old[first : last + 1])]
        body += [*(f"+{line}" for line in new), *(f" {line}" for line in behind)]
        lines = "\n".join(["*** Begin Patch", "*** Update File: f", "@@", *body, "*** End Patch"])
        (patch,) = parse_patch(lines)
        assert isinstance(patch, UpdateFile)
        source = source_from_bytes(Path("f"), "".join(f"{line}\n" for line in old).encode())
        expected = [*old[:first], *new, *old[last + 1 :]]
        assert patched(source, patch.chunks).decode() == "".join(f"{line}\n" for line in expected)

    def test_lines_at_the_end_are_found_there(self) -> None:
        """`*** End of File` takes the last of several places; an addition alone goes to the end."""
        source = source_from_bytes(Path("f"), b"x\ny\nx\n")
        assert patched(source, [Chunk((), ("x",), ("z",), is_at_end=True)]) == b"x\ny\nz\n"
        assert patched(source, [Chunk((), (), ("new",))]) == b"x\ny\nx\nnew\n"


async def test_a_plan_is_kept_for_the_user(context: ToolContext) -> None:
    """It changes nothing else, and a status that there is not is a wrong call."""
    steps = [{"step": "look", "status": "completed"}, {"step": "mend", "status": "in_progress"}]
    result = await call(UpdatePlan(), context, plan=steps)
    assert (result.summary, [step.step for step in context.plan]) == (
        "1 of 2 steps are done",
        ["look", "mend"],
    )
    with pytest.raises(MalformedCall, match="Invalid enum value 'maybe'"):
        UpdatePlan().parse('{"plan": [{"step": "x", "status": "maybe"}]}')
