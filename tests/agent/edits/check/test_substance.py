"""Answers that change comments, docstrings or white space alone."""

from pathlib import Path

import pytest

from vivace.agent.edits.check.substance import changes_words_alone, is_about_words
from vivace.agent.edits.find.languages import language_for

CODE = '"""Shop."""\n\n\ndef pay(cart):\n    """Take money or not."""\n    return cart.total  # in cents\n'


@pytest.mark.parametrize(
    ("after", "is_so"),
    [
        (CODE.replace("money or not", "money and not"), True),
        (CODE.replace("in cents", "cents"), True),
        (CODE.replace('"""Shop."""', '"""A shop."""'), True),
        (CODE.replace("cart.total  #", "cart.total #"), True),
        (CODE.replace('    """Take money or not."""\n', ""), True),
        (CODE.replace("cart.total", "cart.sum"), False),
        (CODE.replace("return cart.total", 'return "in cents"'), False),
        (CODE.replace("return cart", "return  (cart)"), True),
        (CODE.replace("return cart.total", "return (cart.total,)"), False),
    ],
)
def test_python_is_compared_without_comments_and_docstrings(after: str, is_so: bool) -> None:
    """What is left is the code: brackets that mean nothing are no change, any other token is one."""
    assert changes_words_alone(language_for(Path("a.py")), CODE, after) is is_so


def test_a_statement_that_moves_into_a_block_is_a_change() -> None:
    """White space alone says what a statement of Python belongs to."""
    before = "def f(x):\n    if x:\n        a()\n    b()\n"
    after = "def f(x):\n    if x:\n        a()\n        b()\n"
    assert not changes_words_alone(language_for(Path("a.py")), before, after)


def test_a_string_of_a_body_is_no_docstring() -> None:
    """Only the first statement is one, and a string's text is code."""
    before, after = 'def f():\n    x = "a or b"\n', 'def f():\n    x = "a and b"\n'
    assert not changes_words_alone(language_for(Path("a.py")), before, after)


def test_other_languages_are_compared_by_their_tokens() -> None:
    """Comments of JavaScript are no change either; a file without a grammar is all words."""
    javascript = language_for(Path("a.js"))
    assert changes_words_alone(javascript, "// one\nf(1);\n", "// two\nf(1);\n")
    assert not changes_words_alone(javascript, "// one\nf(1);\n", "// one\nf(2);\n")
    assert not changes_words_alone(None, "one\n", "two\n")


@pytest.mark.parametrize(
    ("instruction", "is_so"),
    [
        ("add a docstring to pay", True),
        ("fix the typo in the comment", True),
        ("document pay", True),
        ("reformat this", True),
        ("add a __repr__ to Cart", False),
        ("split at commas", False),
        ("pay should refuse an empty cart", False),
        (f"`unparse` must write XML comments for the key. {'It does not yet. ' * 20}", False),
        (f"Please fix the documentation of `pay`. {'It is wrong in a few ways. ' * 20}", True),
    ],
)
def test_some_requests_are_about_words(instruction: str, is_so: bool) -> None:
    """There a change of words alone is an answer."""
    assert is_about_words(instruction) is is_so
