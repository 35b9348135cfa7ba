"""Wheels as data: which may be used, and functions that stand alone with what they need."""

import random
import zipfile
from pathlib import Path

import pytest

from vivace.errors import FileProblem
from vivace.training.data.packages import functions_alone, read_packages

MODULE = '''import math
import os as system
from string import digits, ascii_letters

LIMIT = 10
TABLE = make_table()


def area(radius):
    """Return the area of a circle."""
    if radius > LIMIT:
        raise ValueError(radius)
    return math.pi * radius**2


def folder(path):
    found = system.path.dirname(path)
    if not found:
        found = "."
    return found


def needs_another(value):
    if area(value) > 3:
        return 1
    return 2


def needs_what_is_computed(value):
    if value in TABLE:
        return 1
    return 2
'''


def wheel(folder: Path, name: str, licence: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nLicense: {licence}\n\nText: MIT\n")
        file.writestr(f"{name}/shapes.py", MODULE)
        file.writestr(f"{name}/tests/test_shapes.py", MODULE)


def test_a_function_alone_has_what_it_needs_and_no_more() -> None:
    """Imports and constants that it names stand above it; what needs other code of the module is left out."""
    found = {
        text.split("def ")[1].split("(")[0]: text for text, _ in functions_alone(MODULE, random.Random(1))
    }
    assert set(found) == {"area", "folder"}
    assert found["area"].startswith("LIMIT = 10\nimport math\n\n\ndef area(radius):\n")
    assert found["folder"].startswith("import os as system\n\n\ndef folder(path):\n")
    for text in found.values():
        compile(text, "alone", "exec")


def test_a_docstring_that_is_taken_out_is_told() -> None:
    """It is in the text or beside it, never in both."""
    for seed in range(8):
        texts = dict(functions_alone(MODULE, random.Random(seed)))
        (area,) = [text for text in texts if "def area" in text]
        assert ("Return the area" in area) != (texts[area] == "Return the area of a circle.")


@pytest.mark.parametrize(
    ("licence", "is_read"),
    [("MIT", True), ("BSD-3-Clause", True), ("GPL-3.0", False), ("LGPL or MIT", False), ("ask us", False)],
)
def test_only_plainly_permissive_packages_are_read(tmp_path: Path, licence: str, is_read: bool) -> None:
    """What the description says below the head does not count."""
    wheel(tmp_path, "shapes", licence)
    found = [origin for origin, _ in read_packages(tmp_path, frozenset(), 1)]
    assert bool(found) is is_read
    assert all(origin.licence == licence and "tests/" not in origin.path for origin in found)


def test_projects_of_evaluation_sets_are_not_read(tmp_path: Path) -> None:
    """However their name is written."""
    wheel(tmp_path, "Some_Shapes", "MIT")
    assert list(read_packages(tmp_path, frozenset({"some-shapes"}), 1)) == []
    assert list(read_packages(tmp_path, frozenset({"shapes"}), 1))


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    """With the command that fills it."""
    with pytest.raises(FileProblem) as error:
        next(read_packages(tmp_path, frozenset(), 1))
    assert "pip download" in error.value.hint
