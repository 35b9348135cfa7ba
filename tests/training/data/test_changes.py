"""Which tokens of an answer are a change."""

import pytest

from vivace.training.data.changes import changed_tokens


@pytest.mark.parametrize(
    ("new", "changed"),
    [
        ("abcdef", "......"),
        ("abXdef", "..##.."),  # the new one, and the first that is copied again
        ("abdef", "..#.."),  # a deletion shows in what follows it
        ("abcXYdef", "...###.."),
        ("abcdefX", "......#"),
        ("Xabcdef", "##....."),
    ],
)
def test_changes_and_the_way_back_are_marked(new: str, changed: str) -> None:
    """Repeated tokens are not."""
    found = changed_tokens([*b"abcdef"], [*new.encode()])
    assert "".join("#" if each else "." for each in found) == changed
