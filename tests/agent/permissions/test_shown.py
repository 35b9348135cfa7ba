"""What a person approves is shown whole, with nothing in it that cannot be seen."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.write.live_diff import Row
from vivace.agent.permissions.shown import (
    GOES_ON,
    LINE,
    fits,
    hidden_in,
    in_rows,
    is_hidden,
    parse,
    shown,
    shown_in_line,
    visible,
)
from vivace.cli.show.screen import Screen

# Text that is near what could go wrong: escapes, their spelling, marks, letters from right to left.
NASTY = st.lists(
    st.one_of(
        st.characters(),
        st.sampled_from(
            [
                "⟨",
                "⟩",
                "⟨U+202E⟩",
                "⟨ESC⟩",
                "U+41⟩",
                "\\x1b",
                "\u202e",
                "\x1b[2K",
                "\r",
                "\n",
                " \n",
                "\t",
                "\0",
            ]
        ),
        st.sampled_from(
            ["א", "ب", "e\u0301", "\u0336", "\ufe0f", "\U000e0041", "\u3164", "\u2800", "\ud800", "12"]
        ),
    ),
    max_size=40,
).map("".join)


class TestShown:
    @given(NASTY)
    def test_what_is_shown_parses_back(self, text: str) -> None:
        """To just the text, whether it is shown in lines or in one line."""
        assert parse(shown(text)) == text
        assert parse(shown_in_line(text)) == text

    @given(NASTY)
    def test_nothing_that_is_shown_is_hidden(self, text: str) -> None:
        """No control, no format character, no blank but the space, none of those that overwrite others."""
        for written in (shown(text), shown_in_line(text).replace("\n", "!")):
            assert not [char for char in written if is_hidden(char) and char != "\n"]
            assert not [line for line in written.split("\n") if line.endswith(" ")]

    def test_every_character_of_the_kinds_that_hide_is_written_out(self) -> None:
        """All of Unicode, by what it says of itself."""
        for code in range(sys.maxunicode + 1):
            char = chr(code)
            if char not in " \n" and unicodedata.category(char) in (
                "Cc",
                "Cf",
                "Zs",
                "Zl",
                "Zp",
                "Cs",
                "Co",
                "Me",
            ):
                assert shown(f"a{char}b") != f"a{char}b", hex(code)

    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ("touch X; # \rls -la", "touch X; # ⟨CR⟩ls -la"),
            ("ls '\x1b]0;'; touch X", "ls '⟨ESC⟩]0;'; touch X"),
            ("ls \u202eX\u200b\ufe0f\U000e0041", "ls ⟨U+202E⟩X⟨U+200B⟩⟨U+FE0F⟩⟨U+E0041⟩"),
            ("ls\u00a0-la\u3000\u3164\u2800", "ls⟨U+00A0⟩-la⟨U+3000⟩⟨U+3164⟩⟨U+2800⟩"),
            ("cut\\ \n-d\tx", "cut\\⟨U+0020⟩\n-d⟨TAB⟩x"),
            ("rm \u0336a", "rm ⟨U+0336⟩a"),
        ],
    )
    def test_what_hides_is_written_out(self, text: str, written: str) -> None:
        """With the names that are short, and the number of the others."""
        assert shown(text) == written

    @pytest.mark.parametrize(
        "text",
        [
            r"grep -rn 'def \w+\(' src | sed -e 's/\x1b//' -e \"s/a\nb/c/\"",
            "cat > a.py <<'EOF'\nif x:\n    print('⟨b⟩ é \u0065\u0301 日本語 → …')\nEOF",
            'password="hunter2hunter2" ls # -----BEGIN PRIVATE KEY-----',
            'git commit -m "תיקון באג" --all',
        ],
    )
    def test_honest_text_stands_as_it_is(self, text: str) -> None:
        """Backslashes, several lines, letters of other languages, and what looks like a secret."""
        assert shown(text) == text

    @pytest.mark.parametrize("text", ["cp א ב", "rm א 12", "א", "echo 'א' 'ב'", "cp א.txt ב.txt"])
    def test_letters_from_right_to_left_change_no_places(self, text: str) -> None:
        """Where they could turn around what stands beside them they are written out."""
        assert not any(unicodedata.bidirectional(char) in ("R", "AL") for char in shown(text))

    def test_what_is_hidden_is_named(self) -> None:
        """Each once, with its name."""
        assert hidden_in("a\u202eb\u202e\t \x1b") == ["⟨U+202E⟩ RIGHT-TO-LEFT OVERRIDE", "⟨ESC⟩"]
        assert hidden_in("ls\n\t-la") == []


class TestRows:
    @given(NASTY, st.integers(3, 40))
    def test_every_row_has_a_mark(self, text: str, width: int) -> None:
        """And without the marks the rows are all that was shown."""
        written = shown(text)
        found = in_rows(written, width)
        assert all(row.startswith((LINE, GOES_ON)) for row in found)
        lines = "".join(f"\n{row[2:]}" if row.startswith(LINE) else row[2:] for row in found)
        assert lines[1:] == written

    def test_what_is_too_long_does_not_fit(self) -> None:
        """Neither too many lines nor too many characters."""
        assert fits("x" * 1000 + "\n" * 100)
        assert not fits("\n" * 6000)
        assert not fits("x" * 300_000)


def test_a_terminal_writes_out_what_hides_in_a_diff(capsys: pytest.CaptureFixture[str]) -> None:
    """Before a person takes an edit: no letter turns around, none is invisible, tabs are blanks."""
    Screen(colour=False).show_diff([Row("+", "\tif admin:\u202e # \u200b\ufe0f\u3164")])
    assert capsys.readouterr().out == "+    if admin:⟨U+202E⟩ # ⟨U+200B⟩⟨U+FE0F⟩⟨U+3164⟩\n"


def test_a_review_keeps_tabs_and_lines() -> None:
    """And writes out what cannot be seen."""
    assert visible("\tif x:\u202e \n", keep="\t\n") == "\tif x:⟨U+202E⟩ \n"
