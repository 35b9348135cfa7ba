"""Ruff and ty, where they are installed: what they newly find in a text, of the rules that mean breakage.

Owns how they are run: by the text, not by the project's settings, within a time, and never on the user's own
files. Ruff reads standard input; ty reads a folder of links to the project in which the new files stand. Does
not install them (`extras`).
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.repair.imports.origins import root_of
from vivace.child_python import python_command
from vivace.programs import find_program, safe_path

SECONDS = 2.0  # for one run; what takes longer says nothing
NAMES = ("ruff", "ty")
# Syntax, names, and formats that do not fit their arguments: each of them fails when the line runs.
RUFF_RULES = "E9,F501,F502,F503,F505,F506,F507,F508,F521,F524,F70,F821,F822,F823,PLE0117,PLE0118"
# Without `missing-attribute`: of 40 real patches 2 set attributes that it does not know.
TY_RULES = (
    "missing-argument",
    "not-callable",
    "parameter-already-assigned",
    "too-many-positional-arguments",
    "unknown-argument",
    "unresolved-reference",
)
_NOT_LINKED = ("pyproject.toml", "ty.toml", ".git")  # settings, and what no checker reads


def find_checker(name: str, *folders: Path) -> str | None:
    """Return the path of a checker: beside the Python that runs this, or by PATH outside of these folders."""
    beside = Path(python_command()[0]).parent / name
    return str(beside) if os.access(beside, os.X_OK) else find_program(name, *folders)


class Tools:
    """Compares any number of new texts with the same old files."""

    def __init__(self, sources: Sequence[SourceFile]) -> None:
        self._before = {each.path.resolve(): each.text for each in sources if each.path.suffix == ".py"}
        self._root = root_of(next(iter(self._before), Path("/")))
        self._known: dict[str, set[str]] = {}  # by the checker: what it says of the old texts

    def faults(self, after: Mapping[Path, str], but: Sequence[str] = ()) -> list[str]:
        """Return what is newly wrong, in sentences. `but`: names of which others know more."""
        texts = {path.resolve(): text for path, text in after.items() if path.resolve() in self._before}
        found: list[str] = []
        for name in NAMES if texts else ():
            if program := find_checker(name, self._root):
                try:
                    said = self._said(name, program, texts) - self._said_before(name, program, list(texts))
                except (OSError, subprocess.SubprocessError, ValueError):
                    continue  # too slow, no room for its folder, or a report that is none
                found += [each for each in sorted(said) if not any(f"`{word}`" in each for word in but)]
        return found

    def _said_before(self, name: str, program: str, paths: Sequence[Path]) -> set[str]:
        if name not in self._known:
            self._known[name] = self._said(name, program, {path: self._before[path] for path in paths})
        return self._known[name]

    def _said(self, name: str, program: str, texts: Mapping[Path, str]) -> set[str]:
        if name == "ty":
            return self._ty(program, texts)
        return {said for path, text in texts.items() for said in _ruff(program, path, text)}

    def _ty(self, program: str, texts: Mapping[Path, str]) -> set[str]:
        rules = [f"--error={rule}" for rule in TY_RULES]
        with tempfile.TemporaryDirectory(prefix="vivace-ty-") as folder:
            files = [_shadow(self._root, Path(folder), path, text) for path, text in texts.items()]
            options = ["--project", folder, "--ignore=all", *rules, "--output-format=gitlab", "--no-progress"]
            report = _run([program, "check", *options, "--exit-zero", *map(str, files)], "", folder)
        return {
            f"ty: {each['description'].removeprefix(each['check_name'] + ': ')}."
            for each in report
            if each["check_name"] in TY_RULES
        }


def _ruff(program: str, path: Path, text: str) -> set[str]:
    options = ["--isolated", "--no-cache", "--exit-zero", "--quiet", "--target-version=py313"]
    shown = ["--output-format=json", f"--select={RUFF_RULES}", f"--stdin-filename=/{path.name}", "-"]
    report = _run([program, "check", *options, *shown], text, "/")
    return {f"Ruff ({each['code']}): {each['message'].rstrip('.')}." for each in report}


def _run(command: Sequence[str], text: str, folder: str) -> list[dict[str, str]]:
    """Return a checker's report. Raise if it fails or is slow: silence would say that there is nothing."""
    environment = {"PATH": safe_path(), "HOME": folder, "XDG_CONFIG_HOME": folder}
    ran = subprocess.run(
        command,
        input=text.encode(),
        capture_output=True,
        timeout=SECONDS,
        cwd=folder,
        env=environment,
        check=True,
    )
    report: list[dict[str, str]] = json.loads(ran.stdout or "[]")
    return report


def _shadow(root: Path, folder: Path, path: Path, text: str) -> Path:
    """Make a file below a folder of links to all that is beside it in the project. Return the file."""
    parts = path.relative_to(root).parts
    real, made = root, folder
    for part in parts:
        if made.is_symlink():
            made.unlink()
        made.mkdir(exist_ok=True)
        for entry in os.scandir(real):
            link = made / entry.name
            if entry.name != part and entry.name not in _NOT_LINKED and not os.path.lexists(link):
                link.symlink_to(entry.path)
        real, made = real / part, made / part
    if made.is_symlink():
        made.unlink()
    made.write_text(text)
    return made
