"""The diff of a whole file, as it is shown before the question."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.proposal import whole_diff
from vivace.agent.edits.write.live_diff import Row

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)


def rows_of(old: bytes, new: bytes) -> list[Row]:
    hunks = whole_diff(source_from_bytes(Path("f.txt"), old), new)
    return [row for hunk in hunks for row in hunk.rows_with_header]


def text_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@given(LINES, LINES)
def test_applying_the_diff_gives_the_new_file(old: list[str], new: list[str]) -> None:
    """Hunk headers name the right lines: the old file with its hunks replaced is the new one."""
    rows = rows_of(text_of(old), text_of(new))
    result, at = [], 0
    for row in rows:
        if row.tag == "@":
            span = row.text.split()[1].lstrip("-")
            start, _, count = span.partition(",")
            begin = int(start) - (0 if count == "0" else 1)
            result += old[at:begin]
            at = begin
        elif row.tag == "+":
            result.append(row.text)
        else:
            assert old[at] == row.text
            at += 1
            if row.tag == " ":
                result.append(row.text)
    assert result + old[at:] == new


def test_the_same_text_has_no_diff() -> None:
    """No change, no rows."""
    assert rows_of(b"a\nb\n", b"a\nb\n") == []


def test_a_large_file_costs_what_its_change_costs() -> None:
    """One changed line in a file of two megabytes is one hunk, and takes no quadratic table."""
    old = [str(n) for n in range(250_000)]
    new = [*old[:200_000], "new", *old[200_001:]]
    rows = rows_of(text_of(old), text_of(new))
    assert rows[0].text == "@@ -199998,7 +199998,7 @@"
    assert [row.text for row in rows if row.tag in "+-"] == ["200000", "new"]
