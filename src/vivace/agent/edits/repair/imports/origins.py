"""Where a Python name can be imported from: the repository's own files first, then the standard library.

Owns the candidates and which of them fit the way that the name is used. Imports modules of the standard
library to look at them, and never any other. Does not choose between candidates that fit (`step`).
"""

import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from vivace.agent.edits.repair.imports.python_names import Use

MAX_FILES = 1500
MAX_BYTES = 200_000
SKIPPED = {"node_modules", "__pycache__", "venv", "site-packages", "build", "dist", "target", "vendor"}
ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "package.json", "go.mod")
ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot"}  # everybody's names for them
# Modules whose functions are imported by their names. Of the others only classes and constants are known:
# `add` or `run` that nobody defines is hardly that of `operator` or `subprocess`.
_WITH_FUNCTIONS = """
    abc base64 bisect collections contextlib copy dataclasses datetime enum functools hashlib heapq itertools
    math random statistics textwrap time typing unittest.mock urllib.parse uuid
"""
_OTHERS = """
    argparse collections.abc concurrent.futures contextvars csv decimal fractions inspect io ipaddress json
    logging pathlib queue string struct subprocess tempfile threading types unittest weakref zoneinfo
"""
WITH_FUNCTIONS = tuple(_WITH_FUNCTIONS.split())
MODULES = (*WITH_FUNCTIONS, *_OTHERS.split())
TOO_COMMON = {"log", "Error", "time"}  # as a function, `time` is rather what one has forgotten to write
UNWANTED = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3"}  # importing them does something
_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_PLAIN = re.compile(r"^[ \t]*import[ \t]+([^\n]*)", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True)
class Import:
    """One name to import."""

    module: str  # with its leading dots, if it is relative
    name: str = ""  # "": the module itself
    alias: str = ""

    @property
    def line(self) -> str:
        alias = f" as {self.alias}" if self.alias else ""
        return (
            f"from {self.module} import {self.name}{alias}" if self.name else f"import {self.module}{alias}"
        )

    @property
    def bound(self) -> str:
        """Return the name that a file has by it."""
        return self.alias or self.name or self.module.partition(".")[0]

    @property
    def is_standard(self) -> bool:
        return self.module.partition(".")[0] in sys.stdlib_module_names


def origins(path: Path, name: str, use: Use) -> list[Import]:
    """Return the imports that would give a file this name, the best known first."""
    standard = [each for each in _standard(name) if _fits(each, use)]
    return in_repository(path, name) or standard


def in_repository(path: Path, name: str) -> list[Import]:
    """Return how other files of the repository import the name, the most frequent first."""
    found: Counter[Import] = Counter()
    for file in source_files(root_of(path), ".py"):
        try:
            raw = file.read_bytes()
        except OSError:
            continue
        if len(raw) <= MAX_BYTES and name.encode() in raw and file.resolve() != path.resolve():
            is_near = file.parent.resolve() == path.parent.resolve()
            imports = imports_in(raw.decode("utf-8", "replace"))
            found.update(
                {
                    each
                    for each in imports
                    if each.bound == name
                    and (is_near or each.module[0] != ".")
                    and not _is_module(path, each.module)
                }
            )
    return [each for each, _ in found.most_common()]


def _is_module(path: Path, module: str) -> bool:
    """Return whether a file is this module, as others import it: it cannot import from itself."""
    here = path.resolve().with_suffix("")
    parts = (here.parent if here.name == "__init__" else here).parts
    named = tuple(module.strip(".").split("."))
    return parts[-len(named) :] == named


def imports_in(text: str) -> Iterator[Import]:
    """Return every import in a text, by its words alone: it may not parse."""
    for module, names in _FROM.findall(text):
        for part in _COMMENT.sub("", names).strip("() \n").split(","):
            name, _, alias = (word.strip() for word in part.partition(" as "))
            if module.strip(".") + name and name.isidentifier() and module:
                yield Import(module, name, alias)
    for names in _PLAIN.findall(text):
        for part in _COMMENT.sub("", names).split(","):
            module, _, alias = (word.strip() for word in part.partition(" as "))
            if module.replace(".", "").isidentifier():
                yield Import(module, alias=alias)


def root_of(path: Path) -> Path:
    """Return the folder of the project that a file belongs to; its own folder if nothing marks one."""
    folder = path.resolve().parent
    for each in (folder, *folder.parents):
        if any((each / mark).exists() for mark in ROOT_MARKS):
            return each
    return folder


def source_files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Return files of the project, at most `MAX_FILES`. Hidden folders and those of packages are left out."""
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in SKIPPED and each[0] != ".")
        for name in sorted(names):
            if name.endswith(suffixes):
                yield Path(folder) / name
                count += 1
                if count >= MAX_FILES:
                    return


def _standard(name: str) -> list[Import]:
    if name in ALIASES:
        return [Import(ALIASES[name], alias=name)]
    is_module = name in sys.stdlib_module_names and not name.startswith("_") and name not in UNWANTED
    found = [Import(name)] if is_module else []
    return found + [Import(module, name) for module in _names().get(name, ())]


@cache
def _names() -> dict[str, list[str]]:
    """Return the public names of `MODULES`, each with the modules that have it."""
    found: dict[str, list[str]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        own = [each for each, thing in vars(module).items() if _is_own(module, thing)]
        for public in getattr(module, "__all__", own):
            is_known = name in WITH_FUNCTIONS or public.lower() != public
            if is_known and not public.startswith("_") and public not in TOO_COMMON:
                found.setdefault(public, []).append(name)
    return found


def _is_own(module: ModuleType, thing: Any) -> bool:
    """Return whether a thing in a module is its own, and not one that it has imported for itself."""
    if isinstance(thing, ModuleType):
        return False
    home = getattr(thing, "__module__", None) or module.__name__
    return str(home).lstrip("_") == module.__name__


def _fits(given: Import, use: Use) -> bool:
    """Return whether what would be imported has the attributes that are used of it."""
    if not given.is_standard:
        return True
    try:
        module = importlib.import_module(given.module)
    except ImportError:  # left out of this Python, such as tkinter
        return False
    thing = getattr(module, given.name) if given.name else module
    return all(hasattr(thing, each) for each in use.attributes) and (callable(thing) or not use.is_called)
