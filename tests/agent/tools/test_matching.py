"""Where a text is found, tolerantly, and what is said when it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.tools.matching import find, find_exact, reindented
from vivace.errors import EditRejected

CODE = """def first(x):
    total = 0
    for item in x:
        total += item
    return total


def second(x):
    return x * 2
""".splitlines()


def test_an_exact_text_is_found_by_its_place() -> None:
    """Inside of a line, too."""
    match = find(CODE, "total += item")
    assert (match.first_line, match.last_line, match.column, match.end_column) == (4, 4, 8, 21)
    assert match.in_words == "found exactly, at line 4"
    assert find(CODE, "    return total\n\n\ndef second(x):\n").in_words == "found exactly, at lines 5-8"


def test_a_text_that_stands_twice_is_not_chosen() -> None:
    """The places are named."""
    with pytest.raises(EditRejected, match="stands 3 times in the file, exactly: at lines 1, 3, 8"):
        find(["x", "", "x", "", "", "", "", "x"], "x")


def test_other_white_space_is_found() -> None:
    """Wrong indentation, tabs, or blanks at the ends of lines."""
    match = find(CODE, "for item in x:\n\ttotal  += item  ")
    assert (match.first_line, match.last_line, match.how) == (3, 4, "white space")
    with pytest.raises(EditRejected, match="2 times in the file, up to white space"):
        find(["  a  b", "", "a\tb"], "a b")


def test_one_place_that_is_alike_is_taken() -> None:
    """A slip of the model's copy does not stop an edit, and the report says how alike it was."""
    match = find(CODE, "def first(x):\n    totals = 0\n    for item in x:\n        total += item\n")
    assert (match.first_line, match.last_line, match.how) == (1, 4, "alike")
    assert "alike, and nothing else is" in match.in_words


def test_two_places_that_are_alike_are_not_chosen() -> None:
    """Nor is a place that is hardly alike: the nearest is shown with what differs."""
    twins = ["value_a = compute(1, 2, 3)", "", "value_b = compute(1, 2, 3)"]
    with pytest.raises(EditRejected, match="another place is nearly as near"):
        find(twins, "value_c = compute(1, 2, 3)")
    with pytest.raises(EditRejected, match="The nearest, at line 8") as raised:
        find(CODE, "def second(y, z):\n    return y - z * 200")
    assert "+     return x * 2" in raised.value.message


def test_nothing_alike_is_said_plainly() -> None:
    """Also in an empty file."""
    for lines in (CODE, []):
        with pytest.raises(EditRejected, match="not in the file"):
            find(lines, "@@@@@@")


@given(st.lists(st.text("ab \n", max_size=6), max_size=6), st.text("ab\n", min_size=1, max_size=4))
def test_exact_places_are_where_the_text_is(lines: list[str], wanted: str) -> None:
    """Each place, cut out of the file, is the text; there are as many as Python counts."""
    file = [part for line in lines for part in line.split("\n")]
    text = "".join(f"{line}\n" for line in file)
    places = find_exact(file, wanted)
    assert len(places) == text.count(wanted)
    for place in places:
        block = file[place.first_line - 1 : place.last_line]
        cut = "\n".join(block)[place.column :]
        assert cut.startswith(wanted.removesuffix("\n"))
        assert block[-1][: place.end_column].endswith(wanted.removesuffix("\n").rpartition("\n")[2])


@given(st.lists(st.text("ab{}()= ", min_size=4, max_size=12), min_size=3, max_size=8, unique=True), st.data())
def test_white_space_never_hides_a_text(lines: list[str], data: st.DataObject) -> None:
    """However the model spaces a copy, the place is found if it is the only one."""
    at = data.draw(st.integers(0, len(lines) - 1))
    copy = data.draw(st.sampled_from(["\t", "   ", ""])) + lines[at].strip() + "  "
    if not copy.strip():
        return
    places = [line for line in lines if copy.strip() in line]
    if len(places) > 1 or "  " in copy.strip():
        return
    assert lines[find(lines, copy).first_line - 1] == lines[at]


def test_the_new_text_is_moved_to_where_the_old_one_was() -> None:
    """A copy without its indentation gets it back; empty lines stay empty."""
    assert reindented("if x:\n    y()\n\nz()", "if x:", "        if x:") == (
        "        if x:\n            y()\n\n        z()"
    )
    assert reindented("\tx", "\tx", "    x") == "    x"
    assert reindented("a", "    a", "a") == "a"
