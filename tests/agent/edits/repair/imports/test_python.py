"""Imports that a new piece of Python needs: what is missing, where it comes from, where it goes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.apply.source import SourceFile, new_source, source_from_bytes
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.repair.imports.block import edit_for
from vivace.agent.edits.repair.imports.origins import Import, imports_in
from vivace.agent.edits.repair.imports.python_names import undefined_names
from vivace.agent.edits.repair.imports.step import AddedImports, add_imports
from vivace.agent.prompting import Message
from vivace.eval.edits.changes import lines_outside

pytestmark = pytest.mark.unit


class Favourite:
    """Scores one candidate above all others, and remembers what it was asked."""

    def __init__(self, line: str = "") -> None:
        self._line = line
        self.asked: list[str] = []

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        del messages
        self.asked += candidates
        return [-1.0 if each == self._line else -5.0 for each in candidates]


def added(source: SourceFile, new: str, scorer: Favourite | None = None) -> AddedImports | None:
    return asyncio.run(add_imports(scorer or Favourite(), source, PYTHON, new.encode()))


OnDisk = Callable[..., SourceFile]
OLD = '"""Sums."""\n\nimport sys\n\n\ndef total(path):\n    return 0\n'


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return json.loads(path)", "import json"),
        ("return Path(path).name", "from pathlib import Path"),
        ("return defaultdict(list)", "from collections import defaultdict"),
        ("return datetime.now()", "from datetime import datetime"),
        ("return datetime.datetime.now()", "import datetime"),
        ("return deepcopy(path)", "from copy import deepcopy"),
        ("return copy.copy(path)", "import copy"),
        ("return time.sleep(1)", "import time"),
        ("return np.zeros(3)", "import numpy as np"),
    ],
)
def test_a_well_known_name_is_imported(on_disk: OnDisk, body: str, line: str) -> None:
    """A name with one origin that fits its use gets its import, and no model is asked."""
    scorer = Favourite()
    found = added(on_disk(OLD), OLD.replace("return 0", body), scorer)
    assert found is not None
    assert line in found.new_bytes.decode().split("\n")
    assert undefined_names(found.new_bytes.decode()) == frozenset()
    assert not scorer.asked


@pytest.mark.parametrize(
    "body",
    [
        "return helper(path)",  # nobody knows it
        "return sys.argv",  # there already
        "return len(path)",
        "import json\n    return json.loads(path)",
        "return [x for x in path]",
    ],
)
def test_what_is_there_or_unknown_is_left_alone(on_disk: OnDisk, body: str) -> None:
    """No import is made up for a name that is defined, or that no module is known to have."""
    assert added(on_disk(OLD), OLD.replace("return 0", body)) is None


def test_a_name_that_was_missing_before_is_not_ours(on_disk: OnDisk) -> None:
    """Only what the new text lacks and the old one did not lack is added."""
    old = OLD.replace("return 0", "return json.loads(path)")
    assert added(on_disk(old), old.replace("path)\n", "path) or {}\n")) is None


def test_the_repository_decides_before_the_standard_library(on_disk: OnDisk, tmp_path: Path) -> None:
    """A name that other files of the repository import is imported as they do."""
    (tmp_path / "other.py").write_text("from tools.paths import Path\n")
    found = added(on_disk(OLD), OLD.replace("return 0", "return Path(path)"))
    assert found is not None
    assert found.lines == ("from tools.paths import Path",)


def test_a_relative_import_is_taken_over_only_in_its_folder(on_disk: OnDisk, tmp_path: Path) -> None:
    """`from .names import X` in another folder would mean another module here."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "other.py").write_text("from .names import Special\n")
    new = OLD.replace("return 0", "return Special(path)")
    assert added(on_disk(OLD), new) is None
    (tmp_path / "near.py").write_text("from .names import Special\n")
    found = added(on_disk(OLD), new)
    assert found is not None
    assert found.lines == ("from .names import Special",)


def test_the_model_decides_between_origins_that_fit(on_disk: OnDisk) -> None:
    """Where several imports fit, the one that the model scores best is taken."""
    scorer = Favourite("from threading import Lock")
    source = on_disk(OLD + "\n\nimport_ = 1\n")
    (source.path.parent / "a.py").write_text("from threading import Lock\n")
    (source.path.parent / "b.py").write_text("from asyncio import Lock\n")
    found = added(source, source.text.replace("return 0", "return Lock()"), scorer)
    assert found is not None
    assert found.lines == ("from threading import Lock",)
    assert set(scorer.asked) == {"from threading import Lock", "from asyncio import Lock"}


def test_line_ends_and_all_other_bytes_stay(on_disk: OnDisk) -> None:
    """In a file with \\r\\n the new line has it too, and every old line is still there, in order."""
    source = on_disk(OLD.replace("\n", "\r\n"))
    new = source.raw.decode().replace("return 0", "return json.loads(path)")
    found = added(source, new)
    assert found is not None
    assert b"import json\r\nimport sys\r\n" in found.new_bytes
    assert found.new_bytes.replace(b"import json\r\n", b"") == new.encode()


def test_the_unit_of_the_imports_covers_the_change(on_disk: OnDisk) -> None:
    """With the import block as a unit, no changed line is outside of the units."""
    source = on_disk(OLD)
    found = added(source, OLD.replace("return 0", "return Path(path), json"))
    assert found is not None
    spans = [(found.unit.first_line - 1, found.unit.last_line), (5, 7)]
    assert lines_outside(OLD, found.new_bytes.decode(), spans) == 0


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("import os\n\nx = 1\n", Import("json"), "import json\nimport os\n\nx = 1\n"),
        ("import os\nimport sys\n", Import("re"), "import os\nimport re\nimport sys\n"),
        ("import os\n", Import("pathlib", "Path"), "import os\nfrom pathlib import Path\n"),
        ("from typing import Any\n", Import("typing", "cast"), "from typing import Any, cast\n"),
        ("from a import b, B\n", Import("a", "c"), "from a import b, B, c\n"),
        ("import numpy\n", Import("os"), "import os\n\nimport numpy\n"),
        ("import os\n\nfrom .x import y\n", Import("numpy", alias="np"), None),
        (
            "from __future__ import annotations\n",
            Import("os"),
            "from __future__ import annotations\n\nimport os\n",
        ),
        ("def f(): pass\n", Import("os"), "import os\n\n\ndef f(): pass\n"),
        ("#!/bin/python\n# About.\n\n# f\ndef f(): pass\n", Import("os"), None),
        ('"""Doc."""\nx = 1\n', Import("os"), '"""Doc."""\n\nimport os\n\nx = 1\n'),
        ("from a import (\n    b,\n)\n", Import("a", "c"), "from a import (\n    b,\n)\nfrom a import c\n"),
        ("", Import("os"), None),
    ],
)
def test_an_import_goes_where_a_person_would_put_it(text: str, new: Import, expected: str | None) -> None:
    """It is sorted into its section, joins a simple line of its module, or opens the file."""
    edit = edit_for(text, new)
    lines = text.splitlines(keepends=True)
    lines[edit.first - 1 : edit.last] = [edit.text]
    result = "".join(lines)
    assert expected is None or result == expected
    assert new in list(imports_in(result))
    assert list(imports_in(text)) == [each for each in imports_in(result) if each != new]
    compile(result, "file", "exec")


statement = st.sampled_from(
    [
        "import os",
        "import os, sys  # both",
        "from typing import Any",
        "from a.b import (\n    c,\n    d as e,\n)",
        "x = 1",
        "if x:\n    import json",
        "try:\n    import toml\nexcept ImportError:\n    toml = None",
        "# a comment",
        "",
        "def f():\n    return 1",
        "@f\nclass C:\n    pass",
    ]
)


@given(
    st.sampled_from(["", '"""Doc."""\n', "#!/usr/bin/python\n", "from __future__ import annotations\n"]),
    st.lists(statement, max_size=6),
    st.sampled_from([Import("re"), Import("typing", "cast"), Import("numpy", alias="np"), Import(".x", "y")]),
)
def test_an_import_can_be_added_to_any_file(opening: str, statements: list[str], new: Import) -> None:
    """Whatever the file, it parses afterwards, has the name, and keeps every other line."""
    text = opening + "".join(f"{each}\n" for each in statements)
    edit = edit_for(text, new)
    lines = text.split("\n")[:-1] if text else []
    kept = [*lines[: edit.first - 1], *lines[edit.last :]]
    result = [*lines[: edit.first - 1], *edit.text.split("\n")[:-1], *lines[edit.last :]]
    compile("\n".join(result) + "\n", "file", "exec")
    assert new.bound not in (undefined_names("\n".join([*result, new.bound])) or ())
    assert edit.last - edit.first + 1 in (0, 1)
    assert [line for line in result if line in kept] or not kept


@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    """Looking for names or imports in a text that is no Python raises nothing."""
    undefined_names(text)
    list(imports_in(text))


def test_names_of_inner_scopes_and_stars() -> None:
    """Parameters, comprehensions, globals and class bodies are seen; `import *` means that nobody knows."""
    text = "def f(a):\n    global g\n    g = [b for b in a]\n    return lambda c: (c, g, h)\n"
    text += "class K:\n    m = n\n"
    assert undefined_names(text) == {"h", "n"}
    assert undefined_names("from os import *\nprint(q)\n") is None
    source = source_from_bytes(Path("x.py"), b"from os import *\n")
    assert added(source, "from os import *\njson.loads('')\n") is None


def test_a_new_file_gets_its_imports(tmp_path: Path) -> None:
    """Of a file that is yet to be made, all that it lacks is imported."""
    found = added(
        new_source(tmp_path / "new.py"), "def read(path):\n    return json.loads(Path(path).read_text())\n"
    )
    assert found is not None
    assert found.new_bytes.decode().startswith("import json\nfrom pathlib import Path\n\n\ndef read")


@pytest.mark.parametrize("module", ["shop", "pkg.shop", ".shop"])
def test_a_file_does_not_import_from_itself(tmp_path: Path, module: str) -> None:
    """A name that other files have from this very file is not imported into it when it is gone."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "pkg" / "app.py").write_text(f"from {module} import total\n")
    path = tmp_path / "pkg" / "shop.py"
    path.write_text("def total():\n    return 1\n\n\ndef show():\n    return total()\n")
    new = "def amount():\n    return 1\n\n\ndef show():\n    return total()\n"
    assert added(source_from_bytes(path, path.read_bytes()), new) is None
