"""Which units a text is about, by words and names alone."""

from pathlib import Path

import pytest

from vivace.agent.edits.places.listing import list_paths
from vivace.agent.edits.places.ranking import rank_places

FILES = {
    "shop/__init__.py": 'from shop.cart import Cart\n\n\ndef version():\n    return "1"\n',
    "shop/cart.py": '''"""The cart."""


class Cart:
    """What is bought."""

    def __init__(self):
        self.rows = []

    def add(self, row):
        """Add a row, unless it is empty."""
        self.rows.append(_checked(row))

    def __eq__(self, other):
        return self.rows == other.rows


def _checked(row):
    if not row:
        raise ValueError("no such row")
    return row
''',
    "shop/pay.py": """def charge(card, cents):
    return card.take(_rounded(cents))


def _rounded(cents):
    return cents


def read_options(args):
    return "--dry-run" in args
""",
    "tests/test_cart.py": 'def test_add():\n    """An empty row in a cart fails."""\n    Cart().add({})\n',
    "examples/cart.py": "def add(row):\n    pass\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def first(folder: Path, text: str) -> str:
    place = rank_places(folder, list_paths(folder), text).places[0]
    return f"{place.path}:{place.unit.qualified_name}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Adding an empty row to the cart does not fail: `Cart.add({})`.", "shop/cart.py:Cart.add"),
        ("With `shop.pay.charge` I pay too much.", "shop/pay.py:charge"),
        ('It says "no such row" for a row that is there.', "shop/cart.py:_checked"),
        ("--dry-run is ignored", "shop/pay.py:read_options"),
        ("Two carts with the same rows should be equal.", "shop/cart.py:Cart.__eq__"),
        ("add a test that an empty row is refused", "tests/test_cart.py:test_add"),
    ],
)
def test_the_place_is_found(folder: Path, text: str, place: str) -> None:
    """Names, words, messages and options lead to the unit; a test only where one is asked for."""
    assert first(folder, text) == place


def test_tests_and_examples_are_no_candidates_unasked(folder: Path) -> None:
    """They have all the words, and are not what is wrong."""
    files = [str(path) for path, _ in rank_places(folder, list_paths(folder), "add a row to a cart").files]
    assert files[0] == "shop/cart.py"
    assert not [path for path in files if path.startswith(("tests", "examples"))]


def test_the_package_is_not_meant_by_its_name(folder: Path) -> None:
    """`shop` in the text speaks for no file: all of them belong to it."""
    text = "In `shop` the cents of a card are not rounded."
    assert rank_places(folder, list_paths(folder), text).files[0][0] == Path("shop/pay.py")


def test_the_innermost_frame_of_the_repository_counts(folder: Path) -> None:
    """Frames of libraries below it, and of ours above it, count less."""
    text = (
        'Traceback (most recent call last):\n  File "/home/u/shop/pay.py", line 2, in charge\n'
        '  File "/home/u/shop/cart.py", line 19, in _checked\n'
        '  File "/usr/lib/python3/json/decoder.py", line 355, in decode\nValueError\n'
    )
    assert first(folder, text) == "shop/cart.py:_checked"


def test_what_a_named_unit_calls_comes_near(folder: Path) -> None:
    """A fault is often one call deeper than the name in the text."""
    places = rank_places(folder, list_paths(folder), "`charge` takes too much").places
    assert [place.unit.name for place in places[:2]] == ["charge", "_rounded"]
