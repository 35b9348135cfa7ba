"""A mention that means a path at which nothing is: refused with the nearest names; all else stays text."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.conversation.message.missing import check_mentions
from vivace.errors import FileProblem, UnitNotFound

SOURCE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src" / "shop").mkdir(parents=True)
    (folder / "src" / "app.py").write_text(SOURCE)
    (folder / "src" / "shop" / "cart.py").write_text(SOURCE)
    (folder / "two words.py").write_text(SOURCE)
    (folder / "Makefile").write_text("all:\n")
    return folder


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("shorten @src/ap.py please", "@src/app.py"),
        ("what is in @nothere.py?", "backticks"),
        ("shorten @app.py:one", "@src/app.py"),  # of another folder
        ("shorten @card.py", "@src/shop/cart.py"),
        ("shorten (@src/ap.py)", "@src/app.py"),
        ("**@src/ap.py** is too long", "@src/app.py"),
        ("look at @nothere:main", "backticks"),
        ("look at @scr/app", "@src/app.py"),  # a folder nearly named so
        ("look at @src/nothere", "backticks"),
        ("look into @srx/", "@src/"),
        ("look at @./nothere and go on", "backticks"),
        ("look at @../nothere", "backticks"),
        ("look at @~/no/such/file", "backticks"),
        ("look at @/no/such/file.py", "backticks"),
        ('open @"two wrods.py"', '@"two words.py"'),
        ("open @two\\ wrods.py", '@"two words.py"'),
        ("fix @src:main", "Name a file in it"),
        ("write a summary of @nothere.py", "backticks"),
        ("write tests for @src/ap.py", "@src/app.py"),
        ("add a function to @src/ap.py", "@src/app.py"),
        ("move one from @src/app.py to @src/shop/card.py", "@src/shop/cart.py"),
        ("`@dataclass` goes to @nothere.py", "backticks"),
    ],
)
def test_what_is_not_there_is_refused(folder: Path, text: str, near: str) -> None:
    """With what was meant, or with how to write it so that it is no path."""
    with pytest.raises(FileProblem) as refused:
        check_mentions(text, folder)
    assert near in refused.value.hint, refused.value


@pytest.mark.parametrize(
    "text",
    [
        "use @dataclass and @pytest.mark.slow, @app.route('/x.py') and @staticmethod:",
        "mail a@b.example, git@github.com:me/app.py or a.b@src/nothere.py",
        "ask @somebody: is it so?",
        "`@src/nothere.py` and ``@nothere.py:f`` are quoted, `as @nothere.py is`",
        "```python\n@nothere.py\n```",
        "```\nnever closed\n@nothere.py",
        "the text \"see @nothere.py\" and '@src/nothere' and “@nothere.py”",
        "bump @types/node and ask @acme/reviewers",
        "actions/checkout@v4, x=@nothere.py, node_modules/@scope/pkg/lib.js",
        "at @http://localhost:3000/app.js:10:5",
        "@ @@ @: @. @/ @-1,3 +1,4 @@",
        "what is in @src/ and @src?",
        "see @src/app.py: it is long, @src/app.py:1-2 too",
        "see @two\\ words.py and @Makefile",
        "create @src/new.py with a function f",
        "write a new file called @docs/notes.md",
        "save it as @out.json",
        "extract two from @src/app.py into @src/numbers.py",
    ],
)
def test_what_is_no_path_stays_text(folder: Path, text: str) -> None:
    """Decorators, people, addresses, packages, what stands in code or quotes, and files to make."""
    check_mentions(text, folder)


@pytest.mark.parametrize("text", ["import @mui/material/Button", "@/components/Cart is slow", "@acme/ui.css"])
def test_names_of_javascript_stay_text(folder: Path, text: str) -> None:
    """In a project of JavaScript modules have such names: in a package's folder, or behind an alias."""
    (folder / "package.json").write_text('{"dependencies": {"@acme/ui": "1", "@mui/material": "5"}}')
    check_mentions(text, folder)
    with pytest.raises(FileProblem):
        check_mentions(f"{text} and @src/ap.py", folder)


def test_a_unit_that_is_not_there_is_refused(folder: Path) -> None:
    """With the units that have nearly this name."""
    with pytest.raises(UnitNotFound) as refused:
        check_mentions("shorten @src/app.py:tow", folder)
    assert refused.value.hint == "Did you mean two?"
    with pytest.raises(UnitNotFound):
        check_mentions("shorten @src/app.py:90-99", folder)


def test_escaped_absolute_and_home_paths_are_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are mentions like any other where the file is there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.py").write_text(SOURCE)
    text = f"see @two\\ words.py, @~/mine.py:one and @{folder}/src/app.py"
    assert mentions_in(text, folder) == ("two words.py", "~/mine.py:one", f"{folder}/src/app.py")
    check_mentions(text, folder)


def test_a_folder_that_cannot_be_read_is_no_crash(folder: Path) -> None:
    """There is no nearest name then, and the rest is said."""
    with pytest.raises(FileProblem):
        check_mentions(f"see @{'x' * 300}/a.py", folder)
    with pytest.raises(FileProblem):
        check_mentions("see @a.py", folder / "gone")


def test_a_pipe_in_the_place_of_a_package_file_stops_nothing(folder: Path) -> None:
    """The project of a stranger may have one there."""
    os.mkfifo(folder / "package.json")
    with pytest.raises(FileProblem):
        check_mentions("see @acme/ui.css", folder)


@given(st.text(alphabet='@"/.:ab \n\0é`~*\\', max_size=60))
def test_any_text_can_be_checked(text: str) -> None:
    """It is fine, or it is refused: never anything else."""
    with suppress(FileProblem):
        check_mentions(text, Path("/nowhere"))


@pytest.mark.parametrize("part", ["@", "`", "``` ", '"', "@a/", "~", "@\\ ", "*@a:b "])
def test_long_texts_take_no_time(folder: Path, part: str) -> None:
    """A large paste is looked through at once."""
    began_s = time.process_time()
    with suppress(FileProblem):
        check_mentions(part * (100_000 // len(part)), folder)
    assert time.process_time() - began_s < 5
