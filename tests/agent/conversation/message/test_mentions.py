"""`@path` and `@path:name` in a message: found where a file is meant, and nowhere else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.conversation.message.mentions import mentions_in, read_mention
from vivace.errors import FileProblem, UnitNotFound

SOURCE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text(SOURCE)
    (tmp_path / "two words.py").write_text(SOURCE)
    (tmp_path / "dot.").write_text("x\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what does @src/app.py do?", ["src/app.py"]),
        ("explain @src/app.py.", ["src/app.py"]),
        ("explain @src/app.py:one, please", ["src/app.py:one"]),
        ("(see @src/app.py:1-2)", ["src/app.py:1-2"]),
        ("@src/app.py and @src/app.py again", ["src/app.py"]),
        ('open @"two words.py":', ["two words.py"]),
        ("keep @dot. as it is", ["dot."]),
        ("use @dataclass and mail a@src/app.py", []),
        ("`@src/app.py` is only quoted", []),
        ("@missing.py @ @@ @:", []),
        ("@src", []),
    ],
)
def test_mentions_are_found(folder: Path, text: str, found: list[str]) -> None:
    """A mention is a file that exists; the sentence's own stop is not part of it."""
    assert list(mentions_in(text, folder)) == found


def test_a_unit_is_read_alone(folder: Path) -> None:
    """With a name only that unit goes into the prompt."""
    assert read_mention("src/app.py:two", folder) == (
        "src/app.py:two",
        "python",
        "def two():\n    return 2\n",
    )
    assert read_mention("src/app.py", folder)[2] == SOURCE


def test_what_is_wrong_is_said(folder: Path) -> None:
    """A unit or a file that is not there is an error with words."""
    with pytest.raises(UnitNotFound):
        read_mention("src/app.py:three", folder)
    with pytest.raises(FileProblem):
        read_mention("gone.py", folder)


@given(st.text(alphabet='@"/.:ab \n\0é', max_size=40))
def test_any_text_can_be_looked_through(text: str) -> None:
    """No text makes it fail."""
    assert mentions_in(text, Path("/nowhere")) == ()
