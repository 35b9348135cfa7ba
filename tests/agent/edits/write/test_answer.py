"""Reading the stream up to the closing fence."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.write.answer import FenceReader, fence_for

STREAM = st.lists(st.sampled_from(["a", "  b", "`", "``", "```", "    ```", "\n", "\r\n", "é", "````"])).map(
    "".join
)


def read(pieces: list[str], fence: str = "```", opening: str = "") -> tuple[list[str], bool]:
    reader = FenceReader(fence, opening)
    lines = list(reader.lines)
    for piece in pieces:
        lines += reader.feed(piece)
    lines += reader.finish()
    assert lines == reader.lines
    return lines, reader.closed


@given(STREAM, st.lists(st.integers(1, 5)))
def test_chunking_does_not_matter(text: str, sizes: list[int]) -> None:
    """However the stream is cut into pieces, the lines and the end are the same."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    assert read([*pieces, text[at:]]) == read([text]) == read(list(text))


def test_stops_at_the_fence() -> None:
    """What follows the closing fence is not part of the answer."""
    assert read(["a\n```\nThis code", " does\n"]) == (["a"], True)


def test_continues_the_opening_line() -> None:
    """The stream goes on in the middle of the line that was opened."""
    assert read([" return 1\n```"], opening="@x\ndef f():") == (["@x", "def f(): return 1"], True)


def test_end_without_fence_is_told() -> None:
    """A stream that ends without a fence gives all its lines and says that it was not closed."""
    assert read(["a\n", "b"]) == (["a", "b"], False)


def test_indented_fence_is_code() -> None:
    """Backticks as deep as a docstring do not end the answer."""
    assert read(['"""\n    ```\n    x\n    ```\n"""\n```\n']) == (
        ['"""', "    ```", "    x", "    ```", '"""'],
        True,
    )


def test_longer_fence_for_text_with_fences() -> None:
    """Text that has fences is shown in a longer one, which they cannot close."""
    fence = fence_for("# A\n```python\nx\n```\n")
    assert fence == "````"
    assert read(["```python\nx\n```\n````\nmore"], fence) == (["```python", "x", "```"], True)
    assert fence_for("x = 1\n") == "```"
    assert fence_for("x", least=4) == "````"


def test_possible_fence_is_not_shown() -> None:
    """A line in progress that may become the closing fence is held back."""
    reader = FenceReader()
    reader.feed("x\n``")
    assert reader.partial == ""
    reader.feed("y")
    assert reader.partial == "``y"
    assert reader.text == "x\n``y"


def test_long_line_in_single_characters_is_linear() -> None:
    """A megabyte without a newline, character by character, is read in well under the test's time."""
    reader = FenceReader()
    for _ in range(1_000_000):
        reader.feed("x")
    assert [len(line) for line in reader.finish()] == [1_000_000]
