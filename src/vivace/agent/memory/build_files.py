"""What the files of build tools say about a project: its name, how it is built and tested, its style.

Owns which files are read and what is taken from them. What cannot be understood is passed over. Nothing is
run. Does not own the text that is made of it (`first_draft`).
"""

import configparser
import json
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_BYTES = 512 * 1024  # of one file
MAX_COMMANDS = 12
_TARGET = re.compile(r"^([A-Za-z][\w.-]*)\s*:(?![=:])", re.MULTILINE)
_TARGETS = ("all", "build", "check", "test", "tests", "lint", "format", "fmt", "run", "docs")
_SCRIPTS = ("build", "test", "lint", "check", "typecheck", "format", "dev", "start")


@dataclass
class ProjectFacts:
    name: str = ""
    description: str = ""
    commands: list[tuple[str, str]] = field(default_factory=list)  # each with the reason to believe in it
    style: list[str] = field(default_factory=list)

    def add(self, command: str, why: str) -> None:
        if len(self.commands) < MAX_COMMANDS and command not in [known for known, _ in self.commands]:
            self.commands.append((command, why))


def read_facts(root: Path) -> ProjectFacts:
    """Return what the files at the root say."""
    facts = ProjectFacts()
    _scripts_at_root(root, facts)
    for name, read in _READERS.items():
        if text := _text(root / name):
            try:
                read(text, facts)
            except (ValueError, TypeError, AttributeError, KeyError, configparser.Error):
                continue  # a file that is not what its name says
    if not facts.commands and (root / "tests").is_dir() and any(root.glob("tests/test_*.py")):
        facts.add("python -m pytest", "tests/")
    facts.name, facts.description = _line(facts.name, 80), _line(facts.description, 300)
    return facts


def _scripts_at_root(root: Path, facts: ProjectFacts) -> None:
    """Take programs that a person starts by hand: `check`, `test.sh`."""
    for path in sorted(root.glob("*")):
        is_program = path.is_file() and not path.is_symlink() and os.access(path, os.X_OK)
        if is_program and re.fullmatch(r"(check|test|tests|lint|build|ci)(\.sh)?", path.name):
            facts.add(f"./{path.name}", "")


def _pyproject(text: str, facts: ProjectFacts) -> None:
    data = tomllib.loads(text)
    project, tool = data.get("project", {}), data.get("tool", {})
    _take_names(project or tool.get("poetry", {}), facts)
    if "pytest" in tool:
        facts.add("python -m pytest", "pyproject.toml")
    if "ruff" in tool:
        facts.add("ruff check .", "pyproject.toml")
        _line_length(tool["ruff"].get("line-length"), facts)
    if "black" in tool:
        facts.add("black .", "pyproject.toml")
        _line_length(tool["black"].get("line-length"), facts)
    if "mypy" in tool:
        facts.add("mypy .", "pyproject.toml")
    if wanted := project.get("requires-python"):
        facts.style.append(f"Python {_line(str(wanted), 40)}.")


def _package(text: str, facts: ProjectFacts) -> None:
    data = json.loads(text)
    _take_names(data, facts)
    scripts = data.get("scripts", {})
    for name in _SCRIPTS:
        if name in scripts:
            facts.add("npm test" if name == "test" else f"npm run {name}", "package.json")


def _cargo(text: str, facts: ProjectFacts) -> None:
    _take_names(tomllib.loads(text).get("package", {}), facts)
    facts.add("cargo build", "Cargo.toml")
    facts.add("cargo test", "Cargo.toml")


def _go(text: str, facts: ProjectFacts) -> None:
    if found := re.search(r"^module\s+(\S+)", text, re.MULTILINE):
        facts.name = facts.name or found[1].rpartition("/")[2]
    facts.add("go build ./...", "go.mod")
    facts.add("go test ./...", "go.mod")


def _makefile(text: str, facts: ProjectFacts) -> None:
    targets = set(_TARGET.findall(text))
    for name in _TARGETS:
        if name in targets:
            facts.add(f"make {name}", "Makefile")


def _cmake(text: str, facts: ProjectFacts) -> None:
    if found := re.search(r"project\s*\(\s*(\w+)", text, re.IGNORECASE):
        facts.name = facts.name or found[1]
    facts.add("cmake -B build && cmake --build build", "CMakeLists.txt")
    if "enable_testing" in text:
        facts.add("ctest --test-dir build", "CMakeLists.txt")


def _tox(text: str, facts: ProjectFacts) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(text)
    if "tox" in parser or "testenv" in parser:
        facts.add("tox", "tox.ini")


def _maven(text: str, facts: ProjectFacts) -> None:
    del text
    facts.add("mvn test", "pom.xml")


def _gradle(text: str, facts: ProjectFacts) -> None:
    del text
    facts.add("./gradlew test", "build.gradle")


def _editorconfig(text: str, facts: ProjectFacts) -> None:
    if found := re.search(r"^indent_style\s*=\s*(tab|space)", text, re.MULTILINE):
        facts.style.append(f"Indented with {found[1]}s.")
    if found := re.search(r"^max_line_length\s*=\s*(\d+)", text, re.MULTILINE):
        _line_length(int(found[1]), facts)


def _take_names(table: dict[str, Any], facts: ProjectFacts) -> None:
    facts.name = facts.name or str(table.get("name", ""))
    facts.description = facts.description or str(table.get("description") or "")


def _line_length(length: object, facts: ProjectFacts) -> None:
    words = f"Lines have at most {length} characters."
    if isinstance(length, int) and words not in facts.style:
        facts.style.append(words)


_READERS: dict[str, Callable[[str, ProjectFacts], None]] = {
    "Makefile": _makefile,
    "pyproject.toml": _pyproject,
    "tox.ini": _tox,
    "package.json": _package,
    "Cargo.toml": _cargo,
    "go.mod": _go,
    "CMakeLists.txt": _cmake,
    "pom.xml": _maven,
    "build.gradle": _gradle,
    ".editorconfig": _editorconfig,
}


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return ""
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _line(text: str, most_chars: int) -> str:
    """Return one line without what could be taken for Markdown of ours."""
    return " ".join(text.split()).lstrip("#-` ")[:most_chars]
