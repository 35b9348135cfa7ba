"""The diff while it is being written."""

import difflib

from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.write.live_diff import LiveDiff, Row

TEXT = st.lists(
    st.sampled_from(["", "}", "return x", "alpha = 1", "beta = 2", "gamma()", "delta()"]), max_size=12
)


def diffed(old: list[str], new: list[str]) -> LiveDiff:
    diff = LiveDiff(old)
    diff.feed(new)
    diff.close()
    return diff


def whole(diff: LiveDiff, context: int = 3) -> list[Row]:
    return [row for hunk in diff.hunks(context) for row in hunk.rows_with_header]


def without(rows: list[Row], tag: str) -> list[str]:
    return [row.text for row in rows if row.tag not in (tag, "@")]


@given(TEXT, TEXT)
def test_rows_hold_both_texts(old: list[str], new: list[str]) -> None:
    """Without additions the closed rows are the old text, without deletions the new one."""
    rows = diffed(old, new).rows()
    assert without(rows, "+") == old
    assert without(rows, "-") == new


@given(TEXT, TEXT)
def test_live_rows_hold_the_new_text_so_far(old: list[str], new: list[str]) -> None:
    """At every moment the rows give all new lines, and a beginning of the old ones."""
    diff = LiveDiff(old)
    for count, line in enumerate(new, 1):
        diff.feed([line])
        assert without(diff.rows(), "-") == new[:count]
        passed = without(diff.rows(), "+")
        assert passed == old[: len(passed)]


@given(TEXT, TEXT, TEXT, TEXT)
def test_final_is_a_unified_diff(old: list[str], new: list[str], above: list[str], below: list[str]) -> None:
    """Applying the hunks at the line numbers they state turns the old file into the new one."""
    diff = LiveDiff(old, len(above) + 1, above, below)
    diff.feed(new)
    result, at = [], 0
    file = above + old + below
    for row in whole(diff):
        if row.tag == "@":
            line, _, count = row.text.split()[1].removeprefix("-").partition(",")
            start = int(line) - (count != "0")
            result += file[at:start]
            at = start
            continue
        if row.tag != "+":
            assert file[at] == row.text
            at += 1
        if row.tag != "-":
            result.append(row.text)
    assert result + file[at:] == above + new + below


@given(TEXT, TEXT)
def test_whole_context_is_the_live_rows(old: list[str], new: list[str]) -> None:
    """With unlimited context the final diff is one hunk with exactly the live rows."""
    diff = diffed(old, new)
    final = whole(diff, context=1000)
    assert final[1:] == diff.rows() if old != new else final == []


@given(TEXT)
def test_same_text_has_no_hunks(text: list[str]) -> None:
    """An answer equal to the old text differs nowhere."""
    assert whole(diffed(text, text)) == []
    assert {row.tag for row in diffed(text, text).rows()} <= {" "}


def test_header_is_as_difflib_writes_it() -> None:
    """Hunk headers are those of a unified diff of the file."""
    old = [f"line {number}" for number in range(30)]
    new = [*old[:10], "changed", *old[11:20], *old[22:]]
    expected = [line for line in difflib.unified_diff(old, new, lineterm="") if line.startswith("@@")]
    assert [row.text for row in whole(diffed(old, new)) if row.tag == "@"] == expected


def test_deleted_lines_show_once_passed() -> None:
    """A line is not shown as deleted before the new text has reached something below it."""
    diff = LiveDiff(["def f():", "    first()", "    second()", "    third()"])
    diff.feed(["def f():", "    changed()"])
    assert diff.rows() == [Row(" ", "def f():"), Row("+", "    changed()")]
    diff.feed(["    second()"])
    assert [row.tag for row in diff.rows()] == [" ", "-", "+", " "]


def test_long_deletion_is_seen_at_the_next_line() -> None:
    """A unique line below ten deleted ones is recognised at once."""
    old = [f"statement_{number}()" for number in range(12)]
    diff = LiveDiff(old)
    diff.feed([old[0], old[11]])
    assert [row.tag for row in diff.rows()] == [" ", *"-" * 10, " "]


def test_partial_line_is_context_while_it_may_be() -> None:
    """The line in progress is context as long as it begins like the expected old line."""
    diff = LiveDiff(["alpha()", "beta()", "gamma()"])
    diff.feed(["alpha()"])
    assert diff.rows("be")[-1] == Row(" ", "be")
    assert diff.rows("bx")[-1] == Row("+", "bx")
    diff.feed(["new()"])
    assert diff.rows("be")[-1] == Row(" ", "be")
    assert diff.rows("ga")[-1] == Row(" ", "ga"), "the added line may stand for beta"


def test_empty_old_text_has_the_usual_header() -> None:
    """A unit that is all new begins at line 0 of the old file, as diff writes it."""
    assert whole(diffed([], ["a", "b"]))[0] == Row("@", "@@ -0,0 +1,2 @@")
