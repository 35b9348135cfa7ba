"""Finds what a page of documentation names and the tree does not have.

Looks at links, and at code: paths (`engine/loop/worker.py`), a path with a name in it
(`opening.py: open_runner`), dotted names (`vivace.config.Settings`, `Engine.rest`), and single names that
only a program has (`open_runner`, `ModelCard`). Words, options and whole command lines are no names. Of
commands in blocks, the paths are looked at.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import REPOSITORY

SUFFIXES = (".py", ".md", ".sh", ".cuh", ".h", ".toml", ".txt", ".cmake", ".yaml", ".png", ".jsonl")
ROOTS = ("src", "tests", "docs", "setup", "tools", "benchmarks", "examples", ".ci", ".github")
NOT_HERE = {  # files that are the user's or another program's
    "config.toml",
    "commit_edits.jsonl",
    "tokenizer_config.json",
    "app.py:Task.done",
    "watch.py",
    "time_per_output_token_seconds",  # vLLM's
}
ASIDE = ("benchmarks/cases/", "tests/docs/")  # old texts, and names that are wrong on purpose
PLACEHOLDER = re.compile(r"[A-Z]{4,}|[<>{}*$~…]")  # benchmarks/NAME.py, docs/*.md, ~/.config, $OUT


def dead_references(page: Path) -> list[str]:
    """Return what the page names and the tree does not have, each as it stands on the page."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    dead = [link for link in _links(prose) if not _link_leads_somewhere(page, link)]
    dead += [span for span in re.findall(r"`([^`\n]+)`", prose) if not _is_there(page, span)]
    for block in blocks:
        paths = re.findall(rf"(?<![\w/.])(?:{'|'.join(map(re.escape, ROOTS))})/[\w./-]*\w", block)
        dead += [path for path in paths if not PLACEHOLDER.search(path) and not _find(page, path)]
    return dead


def _links(prose: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def _link_leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or anchor in {_anchor(line) for line in target.read_text("utf-8").splitlines()}


def _anchor(line: str) -> str:
    """Return the anchor that a heading has on a forge; "" for any other line."""
    if not line.startswith("#"):
        return ""
    return re.sub(r"[^\w -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")


def _is_there(page: Path, span: str) -> bool:
    if PLACEHOLDER.search(span.split(":")[0]) or span in NOT_HERE:
        return True
    if found := re.fullmatch(r"([\w./-]+\.py): ?([\w.]+)", span):
        files = _find(page, found[1])
        return any(found[2].split(".")[-1] in _names(file) for file in files)
    if re.fullmatch(r"\.?[\w./-]+", span) and (span.endswith(SUFFIXES) or span.split("/")[0] in ROOTS):
        return bool(_find(page, span))
    if found := re.fullmatch(r"vivace((?:\.\w+)+)", span):
        return _is_module_or_name(found[1][1:]) or span in _source()
    if found := re.fullmatch(r"_?([A-Z]\w+)\.(\w+)", span):
        return any(found[2] in members for members in _classes().get(found[1], []))
    if re.fullmatch(r"_?[A-Z][a-z0-9]+(?:[A-Z]\w*)+|[a-z]+(?:_[a-z0-9]+)+|[A-Z]+(?:_[A-Z]+)+", span):
        return span in _words()
    return True


def _find(page: Path, path: str) -> list[Path]:
    """Return the files or folders that a path may mean: from the root or the page, or a path's end."""
    path = path.rstrip("/")
    places = [REPOSITORY / path, page.parent / path]
    if found := [place.resolve() for place in places if place.exists()]:
        return found
    return [REPOSITORY / each for each in _tracked() if f"/{each}".endswith(f"/{path}")]


def _is_module_or_name(dotted: str) -> bool:
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        place = REPOSITORY.joinpath("src", "vivace", *parts[:count])
        file = place.with_suffix(".py")
        if place.is_dir() or file.is_file():
            rest = parts[count:]
            return not rest or (file.is_file() and set(rest) <= _names(file))
    return False


@cache
def _tracked() -> list[str]:
    """Return every file and folder that belongs to the repository, also where there is no git."""
    places = [*REPOSITORY.glob("*"), *REPOSITORY.glob(".*")]
    places += [place for root in ROOTS for place in (REPOSITORY / root).rglob("*")]
    found = [place.relative_to(REPOSITORY).as_posix() for place in places]
    return [place for place in found if "__pycache__" not in place and not place.startswith(".venv")]


@cache
def _source() -> str:
    """Return all source text: what can be named and is no file."""
    kinds = (".py", ".sh", ".toml", ".cuh", ".h", ".jsonl")
    files = [REPOSITORY / each for each in _tracked() if each.endswith(kinds) and not each.startswith(ASIDE)]
    return "\n".join(file.read_text("utf-8") for file in files if file.is_file())


@cache
def _words() -> set[str]:
    return set(re.findall(r"\w+", _source()))


@cache
def _names(file: Path) -> set[str]:
    """Return every name that a Python file defines at any level."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


@cache
def defined_names() -> set[str]:
    """Return every name that a module of the program defines."""
    return {name for file in (REPOSITORY / "src").rglob("*.py") for name in _names(file)}


@cache
def _classes() -> dict[str, list[set[str]]]:
    """Return the members of every class, by its name; a name may be used in several files."""
    found: dict[str, list[set[str]]] = {}
    for each in _tracked():
        if each.endswith(".py") and not each.startswith(ASIDE):
            for node in ast.walk(ast.parse((REPOSITORY / each).read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name.lstrip("_"), []).append(_members(node))
    return found


def _members(node: ast.ClassDef) -> set[str]:
    inside = list(ast.walk(node))
    functions = {each.name for each in inside if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    stored = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    fields = {
        each.attr for each in inside if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }
    return functions | stored | fields
