"""Rows of the transcript: within the width, coloured without a change, the same however text comes."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.tui.conftest import Open
from vivace.tui.prompt.pasting import Pastes
from vivace.tui.transcript.answer import Answer
from vivace.tui.transcript.blocks import Note
from vivace.tui.transcript.diff import EditBlock
from vivace.tui.transcript.spans import Span, clean, row_text, wrap_code, wrap_words
from vivace.tui.transcript.syntax import colour, lexer_name

LINES = st.text(st.characters(exclude_characters="\n\r"), max_size=80)
WIDTHS = st.integers(8, 60)


@given(LINES, WIDTHS)
@example("00000 00000⺀", 8)  # the row is full when a word comes that is longer than any row
def test_rows_fit_and_no_letter_is_lost(line: str, width: int) -> None:
    """Wrapped words keep every letter that is not a space, and no row is wider than the screen."""
    line = clean(line)
    for wrap in (wrap_words, wrap_code):
        rows = wrap([Span(line)], width, (Span("  "),), (Span("  "),))
        assert all(cell_len(row_text(row)) <= width for row in rows)
        assert "".join("".join(map(row_text, rows)).split()) == "".join(line.split())


@given(LINES, st.sampled_from(["", "*/", '"""']), st.sampled_from(["python", "js", "sh", "toml", "none"]))
def test_colours_change_no_letter(line: str, state: str, language: str) -> None:
    """The coloured spans of a line add up to the line."""
    spans, _ = colour(line, state, lexer_name(language))
    assert row_text(spans) == line


def test_a_string_of_several_lines_keeps_its_colour() -> None:
    """The state between two lines says that a string goes on."""
    _, state = colour('x = """one', "", "python")
    spans, state = colour('two""" + y  # end', state, "python")
    assert [span.style for span in spans if span.text.strip()] == ["string", "code", "code", "comment"]
    assert state == ""


@given(
    st.lists(st.sampled_from(["word ", "\n", "```python\n", "x = '''", "```\n", "- item", "**b**", "`"])),
    WIDTHS,
)
def test_an_answer_is_the_same_however_it_comes(pieces: list[str], width: int) -> None:
    """Rows of an answer that grew piece by piece, drawn in between, equal those of the whole."""
    grown, whole = Answer(), Answer()
    for piece in pieces:
        grown.grow(piece)
        list(grown.rows(width))
    whole.grow("".join(pieces))
    assert list(grown.rows(width)) == list(whole.rows(width))


def test_control_characters_cannot_reach_the_terminal() -> None:
    """Escapes, bells and bidirectional marks are made visible."""
    assert clean("a\x1b[31m\x07\u202eb\tc") == "a\ufffd[31m\ufffd\ufffdb    c"


@given(st.lists(st.text(max_size=3000), max_size=3))
def test_folded_pastes_are_sent_whole(texts: list[str]) -> None:
    """What stands for a paste becomes the paste again, with plain line ends."""
    pastes = Pastes()
    folded = [pastes.fold(text) for text in texts]
    plain = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    assert [pastes.unfold(text) for text in folded] == plain
    assert all(len(text) <= 2000 for text in folded)


class Counted(Note):
    drawn = 0

    def make_rows(self, width: int):  # type: ignore[no-untyped-def]
        Counted.drawn += 1
        return super().make_rows(width)


async def test_blocks_outside_of_the_view_cost_nothing(open_screen: Open) -> None:
    """Of 5,000 blocks only those in view are ever drawn; scrolling draws those it passes."""
    async with open_screen(size=(40, 12)) as screen:
        transcript = screen.app.transcript
        transcript.blocks += [Counted(f"note {number}") for number in range(5000)]
        transcript.touch()
        await screen.sees("note 4999")
        assert Counted.drawn < 40
        await screen.press("pageup")
        await screen.is_gone("note 4999")
        assert Counted.drawn < 80
        await screen.press("ctrl+end")
        await screen.sees("note 4999")


async def test_at_most_sixty_frames_a_second(open_screen: Open) -> None:
    """However often text comes, the transcript is drawn on its own clock."""
    async with open_screen() as screen:
        answer = screen.app.transcript.add(Answer())
        await screen.until(lambda: screen.app.transcript.frames)
        before = screen.app.transcript.frames
        for number in range(10_000):
            answer.grow(f"{number} ")
            screen.app.transcript.touch()
        await screen.sees("9999")
        assert screen.app.transcript.frames - before <= 2


def test_an_edit_shows_line_numbers_of_the_file() -> None:
    """A diff that still grows counts from the unit's first line."""
    from vivace.agent.edits.write.live_diff import LiveDiff

    diff = LiveDiff(["def f():", "    return 1"], 10)
    diff.feed(["def f():"])
    block = EditBlock("a.py", ".py")
    block.locate("a.py:10-11  f", 10)
    block.grow(diff, "    return 2")
    rows = [row_text(row).rstrip() for row in block.rows(40)]
    assert rows == ["  a.py:10-11  f", "  10   def f():", "  11 +     return 2"]
