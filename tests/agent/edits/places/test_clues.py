"""What a text says about the place it means."""

import pytest

from vivace.agent.edits.places.clues import Frame, is_beside, read_clues, subjects
from vivace.agent.edits.places.splitting import parts_of


def test_identifiers_are_split_and_kept_whole() -> None:
    """`read_userNames` is its parts without endings, and itself; a special method is only itself."""
    assert parts_of("read_userNames") == ("read", "user", "nam", "read_usernames")
    assert parts_of("__eq__") == ("__eq__",)


def test_names_in_code_weigh_more_than_prose() -> None:
    """A name in a code span weighs more than the same word in a sentence, data in quotes less."""
    words = read_clues('The reader breaks on `parse_row("lemon")` since the upgrade.').words
    assert words["parse_row"] > words["reader"] > words["lemon"]


def test_dotted_names_are_found_in_spans_blocks_and_prose() -> None:
    """What is named in code is a name, and so is what is called or has an underscore in prose."""
    text = "`shop.Cart.add` and shop.pay() differ, see also read_rows.\n\n```python\nstore.load(1)\n```\n"
    names = read_clues(text).names
    assert {"shop.Cart.add", "shop.pay", "read_rows", "store.load"} <= set(names)
    assert "differ" not in names


def test_messages_and_options_are_phrases() -> None:
    """What stands in quotes and options are looked for as they are."""
    phrases = read_clues('It prints "no such row: 3" with --dry-run.').phrases
    assert {"no such row: 3", "--dry-run"} <= set(phrases)


def test_the_innermost_frame_comes_last() -> None:
    """Python writes the innermost frame last, JavaScript first."""
    python = (
        'Traceback:\n  File "app/main.py", line 3, in run\n  File "app/shop.py", line 9, in pay\nKeyError'
    )
    assert read_clues(python).frames[-1] == Frame("app/shop.py", 9, "pay")
    javascript = "Error: no\n    at pay (src/shop.js:9:3)\n    at run (src/main.js:3:1)"
    assert read_clues(javascript).frames[-1] == Frame("src/shop.js", 9, "pay")


def test_files_are_named_with_and_without_folders() -> None:
    """A path and a bare name are both names of files."""
    assert {"src/shop.py", "cart.ts"} <= set(read_clues("src/shop.py reads cart.ts badly.").files)


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("add a test for pay", True),
        ("write tests for the parser", True),
        ("fix the failing test", True),
        ("update the docs of pay", True),
        ("Please put the test for a frozen class into a function `is_frozen`.", False),
        ("pay is wrong, for example for 3 coins; the tests pass", False),
        ("add a parameter test to pay", False),
        ("fix the check that tests whether a row is empty", False),
    ],
)
def test_tests_and_docs_are_asked_for(text: str, is_so: bool) -> None:
    """Only where they are what is to be changed."""
    assert read_clues(text).asks_for_beside is is_so


@pytest.mark.parametrize(
    ("path", "is_so"),
    [
        ("tests/helpers.py", True),
        ("shop/test_cart.py", True),
        ("shop/cart_test.go", True),
        ("web/cart.spec.ts", True),
        ("conftest.py", True),
        ("examples/run.py", True),
        ("docs/conf.py", True),
        ("shop/testing.py", False),
        ("shop/latest.py", False),
        ("shop/documents.py", False),
    ],
)
def test_what_stands_beside_the_code(path: str, is_so: bool) -> None:
    """Tests, examples and documentation are known by their folders and names."""
    assert is_beside(path) is is_so


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fork should copy the name", "fork"),
        ("Please close must ignore that. Then open() fails.", "close"),
        ("make indent accept a number", "indent"),
        ("rename the parameter number to index in remove", "remove"),
    ],
)
def test_what_a_request_is_about_may_be_a_name(text: str, name: str) -> None:
    """The subject of a request counts as a name, though it looks like an English word."""
    assert name in subjects(text)
    assert read_clues(text).names[name] > 0.5


def test_a_word_with_an_article_is_no_name() -> None:
    """ "the page should" speaks of a page, and not of a function of that name."""
    assert subjects("the page should be wider, and its title in bold type") == set()
