"""Where a long unit is cut: in whole lines, without a gap, between statements."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agent.edits.find.outlines import source_of, units_of
from vivace.agent.edits.apply.source import splice
from vivace.agent.edits.find.languages import LANGUAGES, PYTHON, Language, language_for
from vivace.agent.edits.find.parts import LONG_LINES, MOST_LINES, is_long, parts_of
from vivace.agent.edits.find.units import Unit, implementation_of, lines_unit

LONG = {  # by suffix: what opens a function, a statement of two lines, what closes it
    "a.py": ("def f(a):\n", "    if a > {}:\n        a -= {}\n", ""),
    "a.js": ("function f(a) {{\n", "  if (a > {}) {{\n    a -= {};\n  }}\n", "}\n"),
    "a.ts": ("function f(a: number) {{\n", "  if (a > {}) {{\n    a -= {};\n  }}\n", "}\n"),
    "a.tsx": ("function f(a: number) {{\n", "  if (a > {}) {{\n    a -= {};\n  }}\n", "}\n"),
    "a.go": ("func f(a int) {{\n", "\tif a > {} {{\n\t\ta -= {}\n\t}}\n", "}\n"),
    "a.rs": ("fn f(mut a: i32) {{\n", "    if a > {} {{\n        a -= {};\n    }}\n", "}\n"),
    "a.c": ("void f(int a) {{\n", "    if (a > {}) {{\n        a -= {};\n    }}\n", "}\n"),
    "a.cpp": ("void f(int a) {{\n", "    if (a > {}) {{\n        a -= {};\n    }}\n", "}\n"),
    "A.java": ("class A {{\n", "    void f{}() {{\n        g({});\n    }}\n", "}\n"),
    "a.sh": ("f() {{\n", "  if test $a -gt {}; then\n    a={}\n  fi\n", "}\n"),
}


def long_text(name: str, statements: int) -> str:
    opening, statement, closing = LONG[name]
    return opening.format() + "".join(statement.format(n, n) for n in range(statements)) + closing


def cut(name: str, text: str, unit: Unit | None = None) -> list[str]:
    """Return the texts of the parts of the first unit, or of the whole text where it has none."""
    source = source_of(name, text)
    units = units_of(name, text)
    unit = unit or (units[0] if units else lines_unit(source, 1, len(source.lines)))
    parts = parts_of(source, language_for(source.path), unit)
    assert parts[0].first_line == unit.first_line
    assert parts[-1].last_line == unit.last_line
    assert all(one.last_line + 1 == next_.first_line for one, next_ in pairwise(parts))
    return [source.text_of(part.first_line, part.last_line) for part in parts]


def test_every_language_has_a_long_text() -> None:
    """What is tested below is all that has a grammar."""
    assert {language_for(source_of(name, "").path) for name in LONG} == set(LANGUAGES)


@pytest.mark.parametrize("name", LONG)
def test_parts_are_whole_statements(name: str) -> None:
    """In every language no statement of a long function is cut in two, and parts are of a few lines."""
    opening, statement, _ = LONG[name]
    texts = cut(name, long_text(name, 40))
    assert len(texts) > 5
    assert all(text.count("\n") <= MOST_LINES for text in texts)
    head = statement.split("{", 1)[0].split("(", 1)[0]
    assert all(text.startswith((head, opening.format())) for text in texts), texts


lines = st.text(alphabet="def class{}()[]=>:;,\"'\n \t#/*f@x\r", max_size=400)


@given(st.sampled_from(LANGUAGES), lines)
@example(PYTHON, "\r\n\n\r")
def test_parts_cover_any_text_and_splice_back(language: Language, text: str) -> None:
    """For any text, with any line ends: parts are in order, cover it all, and put back change no byte."""
    source = source_of(f"a{language.suffixes[0]}", text)
    if not source.lines:
        return
    unit = lines_unit(source, 1, len(source.lines))
    for part in parts_of(source, language, unit):
        own = source.text_of(part.first_line, part.last_line)
        assert splice(source, part.first_line, part.last_line, own) == source.raw
    cut(f"a{language.suffixes[0]}", text, unit)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["\t", "  ", "   \t"])
def test_line_ends_and_indentation_do_not_move_cuts(end: str, indent: str) -> None:
    """Tabs, odd indentation and CRLF are cut where four spaces are."""
    text = long_text("a.py", 40)
    odd = text.replace("    ", indent).replace("\n", end)
    counts = [part.count("\n") for part in cut("a.py", text)]
    assert [part.count("\n") for part in cut("a.py", odd)] == counts


def test_methods_of_a_class_are_parts() -> None:
    """A class is cut between its methods, with decorators and comments above them."""
    method = "    # why\n    @property\n    def m{}(self):\n        a = 1\n        return a\n\n"
    texts = cut("a.py", "class A:\n" + "".join(method.format(n) for n in range(20)))
    assert all(text.startswith(("class A", "    # why")) for text in texts), texts


def test_a_long_statement_is_cut_inside() -> None:
    """One dict of 100 entries is cut between entries, one docstring of 100 lines somewhere."""
    entries = "".join(f"        'key{n}': {n},\n" for n in range(100))
    assert len(cut("a.py", "def f():\n    return {\n" + entries + "    }\n")) > 5
    words = "".join(f"    Line {n}.\n" for n in range(100))
    assert len(cut("a.py", 'def f():\n    """Doc.\n' + words + '    """\n    return 1\n')) > 3


def test_what_opens_a_block_stays_with_it() -> None:
    """No part ends with a line that opens a block, and none begins with `else` or a closing bracket."""
    body = "    if a:\n        b()\n        c()\n    else:\n        d(\n            1,\n        )\n\n"
    texts = cut("a.py", "def f(a):\n" + body * 12)
    assert not [text for text in texts[1:] if text.lstrip().startswith(("else", ")"))]
    assert not [text for text in texts if text.rstrip().endswith(":")]


def test_overload_signatures_are_no_part() -> None:
    """The implementation alone is cut into parts."""
    text = "@overload\ndef f(a: int) -> int: ...\n" + long_text("a.py", 40)
    (unit,) = units_of("a.py", text)
    assert unit.first_line == 1
    written = implementation_of(source_of("a.py", text), unit)
    assert (written.first_line, written.opening) == (3, "def f(a):\n")


def test_what_is_long() -> None:
    """Functions and classes above the limit are; shorter ones, prose, files and new units are not."""
    unit = Unit("function", "f", "f", 1, LONG_LINES)
    longer = Unit("function", "f", "f", 1, LONG_LINES + 1)
    assert not is_long(unit, PYTHON, "x")
    assert is_long(longer, PYTHON, "x")
    assert not is_long(longer, None, "x")
    assert not is_long(longer, PYTHON, "use double quotes everywhere")
    assert is_long(Unit("class", "A", "A", 1, 400), PYTHON, "use double quotes everywhere")
    assert not is_long(Unit("file", "a.py", "a.py", 1, 100), PYTHON, "x")


def test_a_docstring_is_no_part_to_change() -> None:
    """Signature, docstring and code are parts of their own; those of words alone are known."""
    doc = '    """Do it.\n\n' + "".join(f"    :param p{n}: number {n}\n" for n in range(12)) + '    """\n'
    text = "def f(\n    a,\n    b,\n):\n" + doc + "    # why\n" + long_text("a.py", 30).split("\n", 1)[1]
    source, (unit,) = source_of("a.py", text), units_of("a.py", text)
    parts = parts_of(source, PYTHON, unit)
    texts = [source.text_of(part.first_line, part.last_line) for part in parts]
    words = [part_text for part, part_text in zip(parts, texts, strict=True) if part.is_words]
    assert "".join(words).strip() == doc.strip()
    assert texts[0] == "def f(\n    a,\n    b,\n):\n"
