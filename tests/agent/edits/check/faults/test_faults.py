"""What a new text of a Python file newly breaks, and what is left alone."""

import textwrap
from pathlib import Path

import pytest

from vivace.agent.edits.check.faults.checker import Checker

FILES = {
    "pkg/__init__.py": "from .store import Store, load\n",
    "pkg/store.py": """
        def load(path, *, strict=False):
            return path


        class Store:
            def __init__(self, path):
                self.path = path
                self.rows = []

            def add(self, row, at=0):
                self.rows.append(row)
                return at

            def close(self):
                return self.path
    """,
    "pkg/app.py": """
        import json
        import os
        from datetime import tzinfo
        from threading import Thread

        from . import store
        from .store import Store, load


        def first(path):
            t = None
            if path:
                t = load(path)
            return t


        def both(path):
            return store.load(path), Store(path), os.sep


        class Sub(Store):
            def flush(self):
                self.add(1)
                return self.rows
    """,
    "use.py": """
        from pkg import load

        load("a", strict=True)
    """,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
    return tmp_path


def said(project: Path, name: str, old: str, new: str) -> list[str]:
    """Return what is newly wrong when one piece of a file becomes another, in it and in other files."""
    path = project / name
    before = path.read_text()
    assert old in before
    after = {path: before.replace(old, new, 1)}
    checker = Checker({path: before})
    return [each.said for each in [*checker.in_files(after), *checker.in_users(after)]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    t = None\n", "", "`first` reads `t`, which may have no value: an assignment of it is gone."),
        ("    t = None\n", "    print(t)\n", "`first` reads `t` before it has a value."),
        ("t = load(path)", "t = load()", "`first` calls `load` without `path`."),
        (
            "t = load(path)",
            "t = load(path, fast=1)",
            "`first` calls `load` with `fast`, which it does not take.",
        ),
        (
            "store.load(path)",
            "store.load(path, 1)",
            "`both` calls `store.load` with 2 arguments in order, but it takes 1 argument.",
        ),
        ("Store(path)", "Store()", "`both` calls `Store` without `path`."),
        ("store.load(path)", "store.loads(path)", "`both` uses `store.loads`, which is not in that module."),
        ("os.sep", "os.separator", "`both` uses `os.separator`, which is not in that module."),
        ("self.rows", "self.lines", "`Sub.flush` uses `self.lines`, which nothing defines."),
        ("import Store, load", "import Store, load, save", "It cannot import: `from .store import save`."),
        (
            "Store(path), os",
            "Store(path).add(1, 2, 3), os",
            "`both` calls `Store.add` with 3 arguments in order, but it takes 2 arguments.",
        ),
        ("Store(path), os", "Store(path).rose, os", "`both` uses `Store.rose`, which nothing defines."),
        (
            "def both(path):\n",
            "def both(path, kept: Store):\n    print(kept.rose)\n",
            "`both` uses `Store.rose`, which nothing defines.",
        ),
        (
            "class Sub(Store):",
            "class Zone(tzinfo):\n    def go(self):\n        return self.rose\n\n\nclass Sub(Store):",
            "`Zone.go` uses `self.rose`, which nothing defines.",
        ),
        ("import json\n", "import pkg.cache\n", "It cannot import: `import pkg.cache`."),
        ("import json\n", "from json import parse\n", "It cannot import: `from json import parse`."),
    ],
)
def test_what_newly_breaks_is_said(project: Path, old: str, new: str, expected: str) -> None:
    """One sentence names the function and what is wrong in it."""
    assert expected in said(project, "pkg/app.py", old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    t = None\n    if path:\n        t = load(path)\n    return t\n", "    return load(path)\n"),
        ("    t = None\n    if path:\n", "    t = 1\n    if not path:\n"),
        ("    if path:\n", "    for path in path:\n"),
        ("t = load(path)", "t = load(*path)"),
        ("t = load(path)", "t = load(path, **os.environ)"),
        ("def first(path):", "def first(path, load=load):"),
        ("os.sep", "getattr(os, 'separator', '')"),
        ("    return self.rows", "    self.lines = []\n        return self.lines"),
        ("import json\n", "try:\n    import pkg.cache\nexcept ImportError:\n    pass\n"),
        ("import json\n", "import somebody.elses\n"),
        ("Store(path), os", "Sub(path).add(1, 2), os"),
        ("def both(path):\n", "def both(path, kept: Store):\n    kept.flush()\n"),  # a Sub may be given
        ("def both(path):\n", "def both(path, kept: Store):\n    kept = path\n    print(kept.rose)\n"),
        (
            "class Sub(Store):",
            "class Job(Thread):\n    def go(self):\n        return self.rose\n\n\nclass Sub(Store):",
        ),
        (
            "class Sub(Store):",
            "class Zone(tzinfo):\n    def go(self):\n        return self.utcoffset(1)\n\n\nclass Sub(Store):",
        ),
        ("import os\n", "import os\nif os.name == 'nt':\n    from os import startfile\n"),
        (
            "class Sub(Store):",
            "class Sub(Store, json.JSONEncoder):\n    def go(self):\n        self.item()\n",
        ),
    ],
)
def test_what_may_be_right_is_left_alone(project: Path, old: str, new: str) -> None:
    """What is not read any more, is given in unknown ways, or is expected to fail, is no fault."""
    assert said(project, "pkg/app.py", old, new) == []


def test_callers_in_other_files_are_looked_at(project: Path) -> None:
    """A parameter that goes breaks who gives it, also through a package that passes the name on."""
    found = said(project, "pkg/store.py", "def load(path, *, strict=False):", "def load(path):")
    assert found == ["`use.py` calls `load` with `strict`, which it does not take."]
    found = said(project, "pkg/store.py", "def load(", "def read(")
    assert "`app.py` cannot import: `from .store import load`." in found


def test_a_fault_that_was_there_is_not_told(project: Path) -> None:
    """What the old text had wrong is not charged to the new one, wherever it stands now."""
    path = project / "pkg/app.py"
    path.write_text(path.read_text().replace("os.sep", "os.separator"))
    assert said(project, "pkg/app.py", "def both(path):", "def pair(path):\n    path = path or '.'") == []
