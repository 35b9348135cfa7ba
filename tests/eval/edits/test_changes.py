"""Changed lines, inside and outside of the units that were to be rewritten."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.eval.edits.changes import lines_changed, lines_outside

LINES = st.lists(st.sampled_from(["a", "b", "", "    c"]), max_size=8)


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@given(head=LINES, old=LINES, tail=LINES, new=LINES)
def test_a_rewritten_unit_is_no_change_outside(
    head: list[str], old: list[str], tail: list[str], new: list[str]
) -> None:
    """Whatever the unit becomes, and however much its lines look like those around it."""
    span = (len(head), len(head) + len(old))
    assert lines_outside(text([*head, *old, *tail]), text([*head, *new, *tail]), [span]) == 0


@given(pieces=st.tuples(LINES, LINES, LINES), old=st.tuples(LINES, LINES), new=st.tuples(LINES, LINES))
def test_two_rewritten_units_are_no_change_outside(
    pieces: tuple[list[str], ...], old: tuple[list[str], ...], new: tuple[list[str], ...]
) -> None:
    """In any order of the units."""
    head, middle, tail = pieces
    first = (len(head), len(head) + len(old[0]))
    second = (first[1] + len(middle), first[1] + len(middle) + len(old[1]))
    before = text([*head, *old[0], *middle, *old[1], *tail])
    after = text([*head, *new[0], *middle, *new[1], *tail])
    assert lines_outside(before, after, [second, first]) == 0


@given(head=LINES, old=LINES, tail=LINES, at=st.integers(0, 20))
def test_a_line_that_is_changed_outside_is_counted(
    head: list[str], old: list[str], tail: list[str], at: int
) -> None:
    """Wherever it is."""
    outside = [*range(len(head)), *range(len(head) + len(old), len(head) + len(old) + len(tail))]
    lines = [*head, *old, *tail]
    if outside:
        changed = [*lines]
        changed[outside[at % len(outside)]] = "changed"
        assert lines_outside(text(lines), text(changed), [(len(head), len(head) + len(old))]) >= 1


def test_without_a_unit_every_change_is_outside() -> None:
    """Nothing was to be changed."""
    assert lines_outside("a\nb\n", "a\nc\n", []) == 2


def test_lines_are_counted_as_a_diff_does() -> None:
    """A changed line is one removed and one added."""
    assert lines_changed("a\nb\nc\n", "a\nx\nc\nd\n") == 3
    assert lines_changed("a\n", "a\n") == 0
