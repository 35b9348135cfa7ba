"""A function or class moved into a file that is there."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.edits.plan.test_moving import move, run
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.plan.moving import moved
from vivace.agent.edits.scope import read_scope
from vivace.errors import EditRejected

APP = """import math

LIMIT = 3


def root(x):
    return math.sqrt(x)


def other():
    return LIMIT
"""
ROOT = "def root(x):\n    return math.sqrt(x)\n"


def test_it_goes_to_the_end_with_what_it_needs(tmp_path: Path) -> None:
    """The file's own text stays as it is, and the import comes to its imports."""
    tools = "import os\n\nHERE = os.getcwd()\n"
    found = move(tmp_path, {"app.py": APP, "tools.py": tools}, "move root to the existing file tools.py")
    assert found["tools.py"] == f"import math\nimport os\n\nHERE = os.getcwd()\n\n\n{ROOT}"
    assert "root" not in found["app.py"]
    assert run(tmp_path, "import tools; print(tools.root(4))") == "2.0"


def test_it_goes_above_the_main_part(tmp_path: Path) -> None:
    """What runs as a program stays last."""
    tools = 'import math\n\n\n# Start.\nif __name__ == "__main__":\n    print(math.pi)\n'
    found = move(tmp_path, {"app.py": APP, "tools.py": tools}, "move root to tools.py")
    assert found["tools.py"] == tools.replace("# Start", f"{ROOT}\n\n# Start")


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("from app import root\n", ""),
        ("from app import other, root\n", "from app import other\n"),
        ("from app import (\n    other,\n    root,\n)\n", "from app import (\n    other,\n)\n"),
    ],
)
def test_a_file_that_imported_it_has_it_now(tmp_path: Path, line: str, left: str) -> None:
    """Its import goes away, and the unit stands above what uses it while the file is loaded."""
    tools = f"import math\n\n{line}\nTWO = root(4)\n"
    found = move(tmp_path, {"app.py": APP, "tools.py": tools}, "move root to tools.py")
    above = f"import math\n\n{left}" if left else "import math\n"
    assert found["tools.py"].replace("\n\n\n\n", "\n\n\n") == f"{above}\n\n{ROOT}\n\nTWO = root(4)\n"
    assert run(tmp_path, "import tools; print(tools.TWO)") == "2.0"


def test_its_users_are_led_there(tmp_path: Path) -> None:
    """Also a file of another package, by the dots that it uses."""
    files = {
        "pkg/__init__.py": "",
        "pkg/app.py": APP,
        "pkg/tools.py": "from math import pi\n\n\ndef area(x):\n    return pi * x\n",
        "pkg/user.py": "from .app import root\n\nprint(root(9))\n",
    }
    found = move(tmp_path, files, "move root to pkg/tools.py", "pkg/app.py")
    assert found["pkg/user.py"] == "from .tools import root\n\nprint(root(9))\n"
    assert run(tmp_path, "import pkg.user") == "3.0"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("def root(x):\n    return 1\n", "has a root already"),
        ("root = 1\n", "has a root already"),
        ("def use():\n    return root\n", "has a root already"),
        ("math = 1\n", "`math` means something else"),
        ("from cmath import pi as math\n", "`math` means something else"),
        ("import app\n\nX = app.root(1)\n", "as an attribute"),
        ("def use():\n    from app import root\n\n    return root\n", "cannot be taken out"),
        ("from app import root as r\n", "cannot be taken out"),
        ("try:\n    from app import root\nexcept ImportError:\n    root = None\n", "cannot be taken out"),
    ],
)
def test_what_would_mean_another_thing_is_refused(tmp_path: Path, target: str, why: str) -> None:
    """The name is taken, or a name that the unit uses is, or others find it by a way that would end."""
    with pytest.raises(EditRejected, match=why):
        move(tmp_path, {"app.py": APP, "tools.py": target}, "move root to tools.py")


def test_a_name_of_the_language_that_the_target_defines_is_noticed(tmp_path: Path) -> None:
    """`len` of the unit would become the target's."""
    files = {"app.py": "def size(x):\n    return len(x)\n", "tools.py": "def len(x):\n    return 0\n"}
    with pytest.raises(EditRejected, match="`len` means something else"):
        move(tmp_path, files, "move size to tools.py")


def test_files_that_would_import_each_other_are_named(tmp_path: Path) -> None:
    """The old file still needs the unit, and the target needs the old file, if only by a third one."""
    files = {
        "app.py": "def root(x):\n    return x\n\n\ndef other():\n    return root(1)\n",
        "tools.py": "import third\n",
        "third.py": "from app import other\n",
    }
    with pytest.raises(EditRejected, match=r"tools.py → third.py → app.py → tools.py"):
        move(tmp_path, files, "move root to tools.py")


def test_a_circle_that_does_not_close_while_loading_is_none(tmp_path: Path) -> None:
    """Imports inside of functions and for type checks run later or never."""
    third = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import app\n"
    files = {
        "app.py": "def root(x):\n    return x\n\n\ndef other():\n    return root(1)\n",
        "tools.py": "import third\n\n\ndef late():\n    import app\n\n    return app\n",
        "third.py": third,
    }
    assert "tools.py" in move(tmp_path, files, "move root to tools.py")
    assert run(tmp_path, "import app; print(app.other())") == "1"


def test_deferred_annotations_are_not_lost(tmp_path: Path) -> None:
    """A unit with annotations that are never evaluated does not go where they would be."""
    files = {
        "app.py": "from __future__ import annotations\n\n\ndef root(x: Later) -> Later:\n    return x\n",
        "tools.py": "X = 1\n",
    }
    with pytest.raises(EditRejected, match="__future__"):
        move(tmp_path, files, "move root to tools.py")


BLOCKS = [
    '"""Tools."""\n', "import os\n", "import math\n", "from app import root\n", "from app import other\n",
    "X = 1\n", "\n", "\n\n\n", "# A comment.\n", "def use():\n    return 1\n", "Y = [\n    1,\n]\n",
    'if __name__ == "__main__":\n    print(1)\n', "class A:\n    x = 1\n",
]  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    blocks=st.lists(st.sampled_from(BLOCKS), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    has_end=st.booleans(),
)
def test_all_other_lines_stay(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[str], end: str, has_end: bool
) -> None:
    """Whatever the target looks like: its lines stay in order, and the unit is there to the letter."""
    folder = tmp_path_factory.mktemp("join")
    text = "".join(blocks)
    text = text if has_end else text.rstrip("\n")
    (folder / "app.py").write_text(APP)
    (folder / "tools.py").write_bytes(text.replace("\n", end).encode())
    try:
        proposal = moved(
            read_scope(parse_target(str(folder / "app.py")), to_write=True), "move root to tools.py"
        )
    except EditRejected:
        return
    assert proposal is not None
    new = next(each for each in proposal.files if each.source.path.name == "tools.py").new_bytes.decode()
    if end == "\r\n" and "\n" in text:
        assert new.count("\n") == new.count("\r\n")
    made = new.replace("\r\n", "\n")
    assert made.count(ROOT.rstrip("\n")) == 1
    compile(made, "tools.py", "exec")
    left = [line for line in made.replace(ROOT.rstrip("\n"), "").split("\n") if line.strip()]
    kept = [line for line in text.split("\n") if line.strip() and line != "from app import root"]
    if "import math" not in kept:
        left.remove("import math")
    assert left == kept
