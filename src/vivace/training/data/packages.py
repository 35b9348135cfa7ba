"""Released packages as sources of functions: wheels that `pip download` left in a folder.

Owns which packages and files may be used, and small files of one function with just the imports and constants
that it needs: requests about such files have answers that the model can know. Runs nothing.
"""

import ast
import builtins
import hashlib
import random
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from vivace.errors import FileProblem
from vivace.training.data.bugs import Function
from vivace.training.data.pairs import Origin, Split

MAX_BYTES = 16_000  # of a file that is taken as it is
MAX_READ = 150_000  # of a file that functions are taken out of
FILES_OF_PACKAGE = 400
DEV_SHARE = 10  # one package in ten
LINES = range(4, 41)
_PERMISSIVE = re.compile(r"\b(mit|bsd|apache|isc|unlicense|python software foundation|psf)\b", re.I)
_FORBIDDEN = re.compile(r"\b(a?gpl|lgpl|gnu|mozilla|mpl|eupl|cddl|proprietary|cc-by)", re.I)
_SKIPPED = re.compile(
    r"(^|/)(tests?|testing|_?vendor(ed)?|locale|data|migrations)(/|$)|(^|/)(test_|conftest)"
)
_BUILTINS = frozenset(dir(builtins))


def read_packages(folder: Path, held_out: frozenset[str], seed: int) -> Iterator[tuple[Origin, bool]]:
    """Yield files of all wheels of a folder, and whether each is one function alone. `held_out`: projects."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise FileProblem(f"No wheels are in {folder}.", "Get some: pip download --no-deps -d FOLDER NAME.")
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            project, release = path.name.split("-")[:2]
            licence = licence_of(wheel)
            if licence and project.lower().replace("_", "-") not in held_out:
                yield from _origins(wheel, project, release, licence, random.Random(f"{seed} {project}"))


def licence_of(wheel: zipfile.ZipFile) -> str:
    """Return what a package says of its licence; empty if that is not plainly permissive."""
    name = next((each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")), None)
    if name is None:
        return ""
    head = wheel.read(name).decode("utf-8", "replace").split("\n\n")[0]
    found = re.findall(r"^(?:License-Expression: |License: |Classifier: License :: )(.{1,120})$", head, re.M)
    said = "; ".join(found)
    return said if _PERMISSIVE.search(said) and not _FORBIDDEN.search(said) else ""


def _origins(
    wheel: zipfile.ZipFile, project: str, release: str, licence: str, chance: random.Random
) -> Iterator[tuple[Origin, bool]]:
    split: Split = "dev" if hashlib.sha256(project.encode()).digest()[0] % DEV_SHARE == 0 else "train"
    names = [name for name in wheel.namelist() if name.endswith(".py") and not _SKIPPED.search(name)]
    chance.shuffle(names)
    for name in names[:FILES_OF_PACKAGE]:
        raw = wheel.read(name)
        if len(raw) > MAX_READ or not raw.isascii() or b"\r" in raw or b"\t" in raw:
            continue
        whole = Origin(project, licence, release, split, name, raw.decode())
        for text, said in functions_alone(whole.text, chance):
            yield whole._replace(text=text, said=said), True
        if len(raw) <= MAX_BYTES:
            yield whole, False


def functions_alone(text: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Yield each function that needs nothing of its file but imports and constants, as a file of its own.

    Half of the docstrings are taken out, and yielded beside the text.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
    given = _given(tree, text)
    lines = text.split("\n")
    for node in tree.body:
        if not isinstance(node, Function) or node.decorator_list or node.end_lineno is None:
            continue
        needed = _needed(node)
        if node.end_lineno - node.lineno + 1 not in LINES or not needed <= given.keys() | _BUILTINS:
            continue
        body, said = lines[node.lineno - 1 : node.end_lineno], ast.get_docstring(node) or ""
        doc = node.body[0]
        if said and chance.random() < 0.5 and len(node.body) > 1 and doc.end_lineno is not None:
            body = [*lines[node.lineno - 1 : doc.lineno - 1], *lines[doc.end_lineno : node.end_lineno]]
        else:
            said = ""
        above = list(dict.fromkeys(given[name] for name in sorted(needed) if name in given))
        yield "\n".join([*above, *(["", ""] if above else []), *body]) + "\n", said


def _given(tree: ast.Module, text: str) -> dict[str, str]:
    """Return the text of imports and short constants of a module, by the name that they give."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    for node in tree.body:
        said = lines[node.lineno - 1] if node.lineno == node.end_lineno else ""
        if isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.level):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                where = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                found[name] = f"{where}import {alias.name}{f' as {alias.asname}' if alias.asname else ''}"
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and 0 < len(said) < 120 and not _loaded(node.value) - _BUILTINS:
                found[target.id] = said
    return found


def _needed(node: Function) -> set[str]:
    """Return the names that a function takes from its module."""
    own = {node.name}
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            own.add(each.arg)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            own.add(each.id)
        elif isinstance(each, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            own.add(each.name or "")
        elif isinstance(each, ast.alias):
            own.add(each.asname or each.name.split(".")[0])
    return _loaded(node) - own


def _loaded(node: ast.AST) -> set[str]:
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }
