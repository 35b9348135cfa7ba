"""Units in odd places, what a unit opens with, and how a name or a line finds one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.edits.find.outlines import PYTHON, shown, source_of, units_of
from vivace.agent.edits.find.languages import LANGUAGES, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import file_unit, find_unit, lines_unit, new_unit_after, unit_around
from vivace.errors import UnitNotFound


def test_the_unit_around_a_line_is_the_smallest() -> None:
    """A line of a method is the method's, one of the class alone is the class's, and some are nobody's."""
    units = units_of("a.py", "X = 1\n\nclass A:\n    y = 2\n\n    def f(self):\n        return 3\n")
    names = [unit.qualified_name if (unit := unit_around(units, line)) else "" for line in range(1, 8)]
    assert names == ["", "", "A", "A", "A", "A.f", "A.f"]


def test_opening_and_signature() -> None:
    """A unit opens with its lines up to the body; the signature is the declaration alone, on one line."""
    load, _, done, _, go, only = units_of("a.py", PYTHON)
    assert load.signature == "async def load(a, b=1) -> int"
    assert load.signature_first_line == 8
    assert load.opening == PYTHON[PYTHON.index("@cache") : PYTHON.index("    def inner")]
    assert done.opening == "    @property\n    def done(self):"
    assert (go.indent, go.parent) == ("        ", "Täsk.Inner")
    assert only.opening == "    def only():"


def test_units_that_share_a_line_are_left_out() -> None:
    """Of two functions on one line neither can be replaced alone, so neither is offered."""
    assert shown("a.js", "function a() {} function b() {}\nfunction c() {}\n") == ["function c 2"]


def test_file_with_syntax_errors_still_has_units() -> None:
    """Functions around a broken line are found."""
    text = "def a():\n    return 1\n\nx = = 2 )\n\ndef c():\n    return 3\n"
    assert {"a", "c"} <= {unit.name for unit in units_of("a.py", text)}


def test_crlf_and_tabs() -> None:
    """Line ends do not matter for what is found; the opening has plain newlines."""
    (unit, method) = units_of("a.py", "class A:\r\n\tdef m(self):\r\n\t\tpass\r\n")
    assert method.indent == "\t"
    assert unit.opening == "class A:\n"


@pytest.mark.parametrize("name", ["a.py", "a.ts", "a.go", "a.rs", "a.cpp", "a.java", "a.sh"])
def test_absurd_nesting_is_survived(name: str) -> None:
    """Thousands of open brackets and namespaces give an answer, not a crash."""
    for piece in ("namespace a { ", "mod a { ", "if x:\n ", "((((", "class A { "):
        assert len(units_of(name, piece * 3000)) <= 3000


@given(st.sampled_from(LANGUAGES), st.text(alphabet="def class{}()=>:;\n \t#/*fnimpl@x", max_size=60))
def test_units_are_prefixes_of_their_lines(language: object, text: str) -> None:
    """For any text at all, units are ordered and each one's opening begins its own lines."""
    name = f"a{language.suffixes[0]}"  # type: ignore[attr-defined]
    source = source_of(name, text)
    for unit in units_of(name, text):
        assert 1 <= unit.first_line <= unit.last_line <= len(source.lines)
        assert source.text_of(unit.first_line, unit.last_line).startswith(unit.opening)


def test_simple_name_is_enough_when_unique() -> None:
    """`go` finds Täsk.Inner.go, and so do `Inner.go` and the full name."""
    units = units_of("a.py", PYTHON)
    assert {find_unit(units, name).first_line for name in ("go", "Inner.go", "Täsk.Inner.go", "go()")} == {22}


def test_ambiguous_name_lists_the_places() -> None:
    """A name that several units share is refused with all of them and their lines."""
    units = units_of(
        "a.py", "class A:\n    def m(self):\n        pass\nclass B:\n    def m(self):\n        pass\n"
    )
    with pytest.raises(UnitNotFound) as error:
        find_unit(units, "m")
    assert "A.m (lines 2-3)" in error.value.message
    assert "B.m (lines 5-6)" in error.value.message


def test_unknown_name_suggests_the_nearest() -> None:
    """A misspelt name, also in case, is answered with the one that was meant."""
    with pytest.raises(UnitNotFound) as error:
        find_unit(units_of("a.py", PYTHON), "TÄSK.DOEN")
    assert "Täsk.done" in error.value.hint


def test_lines_must_be_in_the_file() -> None:
    """A range beyond the end is refused and the length is said."""
    source = source_of("a.txt", "a\n  b\n")
    assert lines_unit(source, 2, 2).indent == "  "
    with pytest.raises(UnitNotFound, match="2 lines"):
        lines_unit(source, 2, 3)


def test_plain_text_has_lines_and_the_file() -> None:
    """Without a grammar the whole file and line ranges remain."""
    source = source_of("notes.txt", "a\nb\n")
    assert list_units(source, language_for(source.path)) == []
    assert (file_unit(source).first_line, file_unit(source).last_line) == (1, 2)
    assert file_unit(source_of("empty.txt", "")).last_line == 0


def test_new_unit_is_an_insertion() -> None:
    """Something new stands below the unit named, at its indentation, and has no lines yet."""
    done = find_unit(units_of("a.py", PYTHON), "done")
    new = new_unit_after(done)
    assert (new.first_line, new.last_line, new.indent, new.parent) == (20, 19, "    ", "Täsk")
