"""Which file an instruction is about when none is mentioned."""

import subprocess
from pathlib import Path

import pytest

from tests.agent.conversation.message.test_intent import Scorer
from vivace.agent.conversation.message.repository import choose_file, choose_place, list_files
from vivace.agent.events.turn import FileChosen
from vivace.errors import UsageError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in {
        "report.py": "def write_table(rows):\n    pass\n",
        "src/shapes.py": "class Circle:\n    def area(self):\n        pass\n",
        "src/other.py": "def area(x):\n    pass\n",
        "tests/test_shapes.py": "def test_area():\n    pass\n",
        "notes.txt": "area\n",
        "node_modules/x.js": "function area() {}\n",
        ".hidden/y.py": "def area():\n    pass\n",
        "broken.py": "\0",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_source_files_are_listed_with_their_units(repository: Path) -> None:
    """What is hidden, fetched, binary or no source is left out; shorter paths come first."""
    listed = {str(each.path): each.names for each in list_files(repository)}
    assert list(listed) == ["report.py", "src/other.py", "src/shapes.py", "tests/test_shapes.py"]
    assert listed["src/shapes.py"] == ("Circle", "Circle.area")


def test_a_link_out_of_the_folder_is_not_listed(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whoever delivered the repository chose where it leads. One that stays inside is a file like others."""
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.py"
    secret.write_text("def secret():\n    pass\n")
    (repository / "out.py").symlink_to(secret)
    (repository / "in.py").symlink_to("report.py")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    listed = [str(each.path) for each in list_files(repository)]
    assert "out.py" not in listed
    assert "in.py" in listed


def test_git_says_what_belongs_to_it(repository: Path) -> None:
    """In a git repository ignored files are left out, and new ones are not."""
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / ".gitignore").write_text("src/other.py\nnode_modules/\n")
    listed = [str(each.path) for each in list_files(repository)]
    assert "src/other.py" not in listed
    assert "src/shapes.py" in listed


@pytest.mark.parametrize(
    ("instruction", "recent", "chosen"),
    [
        ("fix the header in report.py", None, ("report.py", "name")),
        ("fix src/other.py.", "report.py", ("src/other.py", "name")),
        ("make `Circle` round", None, ("src/shapes.py", "name")),
        ("make write_table faster", "src/other.py", ("report.py", "name")),
        ("make it faster", "src/other.py", ("src/other.py", "recent")),
        ("round `area`", "src/other.py", ("src/other.py", "recent")),
        ("make it faster", "gone.py", ("src/shapes.py", "model")),
        ("a circle with a negative radius is an error", None, ("src/shapes.py", "model")),
    ],
)
async def test_the_file_is_chosen(
    repository: Path, instruction: str, recent: str | None, chosen: tuple[str, str]
) -> None:
    """A name decides first, then the file spoken of last, then the model's score."""

    class Shapes(Scorer):
        async def score(self, messages: list[dict[str, str]], candidates: list[str]) -> list[float]:
            del messages
            return [0.0 if candidate == "src/shapes.py`" else -20.0 for candidate in candidates]

    before = repository / recent if recent else None
    path, by = chosen
    wanted = FileChosen(str(repository / path), by)  # type: ignore[arg-type]
    assert await choose_file(Shapes(), repository, instruction, before) == wanted


async def test_an_empty_folder_has_no_file(tmp_path: Path) -> None:
    """There is nothing to change, which is said with what to do."""
    with pytest.raises(UsageError, match="no source file"):
        await choose_file(Scorer(), tmp_path, "fix it", None)


async def test_a_long_text_favours_units_and_a_request_does_not(repository: Path) -> None:
    """The best two units of all files are told for a text of several sentences with many names."""
    request = "Circle.area should be rounded"
    text = f"{request}. " + "`Circle.area` of `Circle` is wrong: it is never rounded as it should be. " * 4
    text += '\n  File "/app/src/shapes.py", line 2, in area\n    def area(self):\n'
    assert (await choose_place(Scorer(), repository, request, None)).favoured == ()
    favoured = (await choose_place(Scorer(), repository, text, None)).favoured
    assert len(favoured) == 2
    assert "Circle.area" in favoured
