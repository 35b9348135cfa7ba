"""Examples in instructions and docstrings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.check.examples import Example, find_examples

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (">>> double(2)\n4", [Example("double(2)", "4")]),
        ("    >>> double(2)\n    4\n    >>> double(-1)\n    -2", [("double(2)", "4"), ("double(-1)", "-2")]),
        ("double(2) == 4", [("double(2)", "4")]),
        ("double([1, 2]) -> [2, 4] and so on", [("double([1, 2])", "[2, 4]")]),
        ("For example `double('a)')` returns 'a)a)'.", []),  # the quote belongs to neither
        ("double('a)') returns 'a)a)'.", [("double('a)')", "'a)a)'")]),
        ("double(2) ➞ 4\ndouble(3) => 6", [("double(2)", "4"), ("double(3)", "6")]),
        ("double(2) is 4, double(3) is 6", [("double(2)", "4"), ("double(3)", "6")]),
        ("double(2) should be 4.", [("double(2)", "4")]),
        ("double(2) = 2 + 2 = 4", []),
        ("double(x) == 4", []),
        ("undouble(2) == 1, a.double(2) == 4", []),
        ("double(2", []),
        ("it doubles", []),
    ],
)
def test_examples_are_read_from_common_ways_of_writing_them(
    text: str, expected: list[tuple[str, str]]
) -> None:
    """A call with constant arguments and the constant that follows are an example, and nothing else is."""
    found = find_examples(text, ["double"])
    assert found == [each if isinstance(each, Example) else Example(*each) for each in expected]


@given(st.text(alphabet="double(2) =->[]{}'\"\\\n\t,.>0123abc", max_size=200))
def test_any_text_may_be_searched(text: str) -> None:
    """Whatever the text, all that is found can be evaluated by Python."""
    for each in find_examples(text, ["double"]):
        compile(each.call, "call", "eval")
        compile(each.expected, "expected", "eval")
