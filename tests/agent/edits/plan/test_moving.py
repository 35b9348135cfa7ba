"""A function or class moved into a new file: exactly as it is, with all imports, without a model."""

import subprocess
import sys
from pathlib import Path

import pytest

from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.plan.moving import Move, move_in, moved
from vivace.agent.edits.scope import read_scope
from vivace.errors import EditRejected

APP = '''"""Shapes."""

import math
from dataclasses import dataclass

SIDES = 4


def area(shape):
    return shape.width ** 2


# A square, seen from above.
@dataclass
class Square:
    width:  float   # as it is written

    def diagonal(self):
        return math.sqrt(2) * self.width


def double(square):
    return Square(2 * square.width)
'''
AREA = "def area(x):\n    return twice(x)\n"
UNIT = APP[APP.index("# A square") : APP.index("\n\ndef double")]


def move(folder: Path, files: dict[str, str], instruction: str, source: str = "app.py") -> dict[str, str]:
    """Return the files that change, by their names, and write them."""
    (folder / "pyproject.toml").touch()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    scope = read_scope(parse_target(str(folder / source)), to_write=True)
    proposal = moved(scope, instruction)
    assert proposal is not None
    assert proposal.problems == ()
    for file in proposal.files:
        file.source.path.parent.mkdir(exist_ok=True)
        file.source.path.write_bytes(file.new_bytes)
    return {str(file.source.path.relative_to(folder)): file.new_bytes.decode() for file in proposal.files}


def run(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "instruction",
    [
        "move class Square to models/square.py",
        "Move `Square` into a new file models/square.py.",
        "please move the Square class from app.py to models/square.py and import it where it is used",
        "move Square out of @app.py into the module models/square.py",
    ],
)
def test_what_is_a_move(instruction: str) -> None:
    """Such words ask for a move and nothing else."""
    assert move_in(instruction) == Move("Square", "models/square.py")


@pytest.mark.parametrize(
    "instruction",
    [
        "move Square to models/square.py and give it a height",
        "move the check to the top",
        "move Square below area",
        "rename Square to models",
    ],
)
def test_what_is_more_or_less_than_a_move(instruction: str) -> None:
    """Whatever else is asked for is for the model."""
    assert move_in(instruction) is None


def test_the_unit_is_moved_as_it_is(tmp_path: Path) -> None:
    """Its text is the same to the letter, its imports go with it, and the old file imports what it uses."""
    found = move(tmp_path, {"app.py": APP}, "move class Square to models/square.py")
    new = found["models/square.py"]
    assert new == f"import math\nfrom dataclasses import dataclass\n\n\n{UNIT}"
    rest = APP.replace(f"\n\n{UNIT}", "").replace(
        "dataclass\n\nS", "dataclass\n\nfrom models.square import Square\n\nS"
    )
    assert found["app.py"] == rest
    assert run(tmp_path, "import app; print(app.double(app.Square(3.0)).width)") == "6.0"


def test_files_that_import_it_are_led_to_its_new_place(tmp_path: Path) -> None:
    """A line that imports only the unit names the new file; the old file needs it no longer."""
    files = {
        "pkg/__init__.py": "",
        "pkg/app.py": f"from .tools import twice\n\n\n{AREA}\n\ndef other():\n    return 1\n",
        "pkg/tools.py": "def twice(x):\n    return 2 * x\n",
        "pkg/user.py": "from .app import area\n\nprint(area(4))\n",
        "main.py": "from pkg.app import area as size\n\nprint(size(5))\n",
    }
    found = move(tmp_path, files, "move area to pkg/shapes/area.py", "pkg/app.py")
    assert found["pkg/shapes/area.py"] == f"from ..tools import twice\n\n\n{AREA}"
    assert found["pkg/user.py"] == "from .shapes.area import area\n\nprint(area(4))\n"
    assert found["main.py"] == "from pkg.shapes.area import area as size\n\nprint(size(5))\n"
    assert found["pkg/app.py"] == "from .tools import twice\n\n\ndef other():\n    return 1\n"
    assert run(tmp_path, "import main") == "10"
    assert run(tmp_path, "import pkg.user") == "8"


def test_who_finds_it_in_the_old_file_still_does(tmp_path: Path) -> None:
    """Where another file uses the old one as a module, or imports more from it, the name stays there."""
    user = "import app\nfrom app import area, double\n\nprint(app.area(double(2)))\n"
    source = "def area(x):\n    return x * x\n\n\ndef double(x):\n    return 2 * x\n"
    found = move(tmp_path, {"app.py": source, "user.py": user}, "move area to area.py")
    assert "user.py" not in found
    assert found["app.py"].startswith("from area import area\n")
    assert run(tmp_path, "import user") == "16"


def test_what_it_uses_of_the_old_file_is_imported_from_there(tmp_path: Path) -> None:
    """A helper stays where it is, if the old file can do without the unit."""
    source = "LIMIT = 3\n\n\ndef check(x):\n    return x < LIMIT\n\n\ndef other():\n    return LIMIT\n"
    found = move(tmp_path, {"app.py": source}, "move check to checks.py")
    assert found["checks.py"] == "from app import LIMIT\n\n\ndef check(x):\n    return x < LIMIT\n"
    assert found["app.py"] == "LIMIT = 3\n\n\ndef other():\n    return LIMIT\n"
    assert run(tmp_path, "import checks; print(checks.check(2))") == "True"


def test_a_name_of_the_language_that_the_old_file_defines_goes_with_it(tmp_path: Path) -> None:
    """In its new file the unit means the same `open` as before."""
    source = "def open(x):\n    return x + 1\n\n\ndef twice(x):\n    return open(open(x))\n"
    found = move(tmp_path, {"app.py": source}, "move twice to twice.py")
    assert found["twice.py"].startswith("from app import open\n")
    assert run(tmp_path, "import twice; print(twice.twice(1))") == "3"


def test_files_further_away_do_not_import_each_other(tmp_path: Path) -> None:
    """A user of the unit that the unit itself needs would be led in a circle: the move is refused."""
    files = {
        "app.py": "from tools import half\n\n\ndef area(x):\n    return half(x)\n",
        "tools.py": "from app import area\n\n\ndef half(x):\n    return x / 2\n",
    }
    with pytest.raises(EditRejected, match=r"area.py → tools.py → area.py"):
        move(tmp_path, files, "move area to area.py")


@pytest.mark.parametrize(
    "source",
    [
        "COUNT = 0\n\n\ndef up():\n    global COUNT\n    COUNT += 1\n",
        "COUNT = 0\n\n\ndef up():\n    return COUNT\n\n\ndef on():\n    global COUNT\n    COUNT += 1\n",
    ],
)
def test_what_changes_while_the_program_runs_is_not_copied(tmp_path: Path, source: str) -> None:
    """A unit that sets a global, or reads one that others set, would see another one elsewhere."""
    with pytest.raises(EditRejected, match="`COUNT` is changed while"):
        move(tmp_path, {"app.py": source}, "move up to up.py")


def test_what_the_old_file_exports_is_still_there(tmp_path: Path) -> None:
    """A name in `__all__` is imported back."""
    source = "__all__ = ['area']\n\n\ndef area(x):\n    return x\n"
    assert "from area import area" in move(tmp_path, {"app.py": source}, "move area to area.py")["app.py"]


def test_two_files_that_would_import_each_other_are_not_made(tmp_path: Path) -> None:
    """The user is told why, and what to move first."""
    source = "LIMIT = 3\n\n\ndef check(x):\n    return x < LIMIT\n\n\nprint(check(1))\n"
    with pytest.raises(EditRejected, match="import each other"):
        move(tmp_path, {"app.py": source}, "move check to checks.py")


@pytest.mark.parametrize(
    ("files", "instruction"),
    [
        ({"app.py": APP, "models.py": "x = (\n"}, "move Square to models.py"),
        ({"app.py": APP, "models.py": "from os import *\n"}, "move Square to models.py"),
        ({"app.py": "def here():\n    return __file__\n"}, "move here to here.py"),
        ({"app.py": APP}, "move Circle to circle.py"),
        ({"app.py": "from math import *\n\n\ndef root(x):\n    return sqrt(x)\n"}, "move root to root.py"),
        ({"app.py": "def root(x:\n    return x\n"}, "move root to root.py"),
    ],
)
def test_what_cannot_be_moved_exactly_is_left_to_the_plan(
    tmp_path: Path, files: dict[str, str], instruction: str
) -> None:
    """A name that is not there, `import *`, files that do not parse, and what depends on its place."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    scope = read_scope(parse_target(str(tmp_path / "app.py")), to_write=True)
    assert moved(scope, instruction) is None


def test_a_process_without_a_folder_moves_within_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of browsers and editors runs in the file system's root; the file is the project's."""
    monkeypatch.chdir("/")
    found = move(tmp_path, {"app.py": APP}, "move class Square to shapes/square.py")
    assert set(found) == {"app.py", "shapes/square.py"}
