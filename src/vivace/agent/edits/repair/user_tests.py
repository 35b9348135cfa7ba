"""The user's own test command, run over a copy of the workspace with a proposal in it.

Owns what is run, where, and what is said about it. It runs in the sandbox only, without network, and the
copy stands at the workspace's own path, so that absolute paths in it stay right. Nothing is run unless the
user named a command; what was to be tested and cannot be is not written. Does not own the walls (`sandbox`),
nor which proposals are tried (`flow`).
"""

import json
import os
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.proposal import Proposal
from vivace.agent.sandbox.here import sandbox_problem, why_none
from vivace.agent.sandbox.run import Limits, run_sandboxed
from vivace.agent.sandbox.workspace import shown_at
from vivace.child_python import python_command
from vivace.errors import SandboxUnavailable, TestsCannotRun

LIMITS = Limits(
    seconds=300.0,
    cpu_seconds=280.0,
    memory_bytes=4 << 30,
    processes=128,
    output_bytes=256 << 10,
    file_bytes=256 << 20,
    folder_bytes=512 << 20,
    open_files=1024,
)
# A failed test as pytest and unittest name it.
_FAILED = re.compile(r"^(?:FAILED|ERROR|FAIL:|ERROR:) (\S+(?: \([\w.]+\))?)", re.MULTILINE)
ORIGINAL = "/original"  # the workspace itself, inside: it can be read only
COULD_NOT_COPY = 121  # the exit code of the copying
TAIL_CHARS = 600  # of what a failed test said
# Folders that are seen and not copied: large, and not what an edit is about.
LINKED = (".git", ".venv", "venv", "node_modules", "target", ".tox", ".mypy_cache")


@dataclass(frozen=True)
class AllowedTests:
    """What the user allowed to be run: a line for the shell, in this folder."""

    line: str
    folder: Path

    @property
    def real_folder(self) -> Path:
        """Return the folder with links followed: where it is inside, too."""
        return Path(os.path.realpath(self.folder))


@dataclass(frozen=True)
class RanTests:
    """What came of it."""

    has_passed: bool
    output: str = ""  # the end of what a test that failed said
    failed: frozenset[str] = frozenset()  # the tests that the output names as failed

    def broken_since(self, before: "RanTests") -> list[str]:
        """Return what failed and did not before; the command as a whole where no test is named."""
        if self.has_passed:
            return []
        if before.has_passed:
            return sorted(self.failed) or ["the test command"]
        return sorted(self.failed - before.failed) if before.failed else []


async def check_can_run(tests: AllowedTests, targets: Iterable[Path] = ()) -> None:
    """Raise TestsCannotRun if tests of a change in these files cannot run. Asked before a model writes."""
    _check_places(tests, targets)
    if problem := await sandbox_problem():
        raise _cannot_run(why_none(problem), problem.hint) from problem


def _check_places(tests: AllowedTests, targets: Iterable[Path]) -> None:
    folder = tests.real_folder
    if outside := next((path for path in targets if not path.is_relative_to(folder)), None):
        raise _cannot_run(f"{outside} is not below {folder}.", "Start vivace in the folder of both.")
    if folder in (Path("/"), Path.home()):
        raise _cannot_run(f"{folder} is too large to be copied.", "Start vivace in the project's folder.")


def _cannot_run(why: str, remedy: str) -> TestsCannotRun:
    hint = f'{remedy} Or edit without tests: --test "", or /test off.'
    return TestsCannotRun(f"The tests cannot run, so nothing is written. {why}", hint)


async def run_tests(tests: AllowedTests, proposal: Proposal) -> RanTests:
    """Run the tests with the proposal in place. Raise TestsCannotRun, and nothing for what they do."""
    folder = tests.real_folder
    targets = [file.source.target for file in proposal.changed]
    _check_places(tests, targets)
    names = {f"new-{number}": path for number, path in enumerate(targets)}
    given = json.dumps(
        {
            "folder": str(folder),
            "original": ORIGINAL,
            "linked": LINKED,
            "new": {name: str(path) for name, path in names.items()},
            "line": tests.line,
        }
    )
    files = {f"new-{number}": file.new_bytes for number, file in enumerate(proposal.changed)}
    files["copy.py"] = _COPY.replace("COULD_NOT_COPY", str(COULD_NOT_COPY)).encode()
    try:
        mounts = await shown_at(folder, ORIGINAL)
        mounts += ["--size", str(LIMITS.folder_bytes), "--tmpfs", str(folder)]
        outcome = await run_sandboxed(
            python_command("-I", "copy.py", given),
            files=files,
            read_only=_interpreters(folder),
            environment=_environment(folder),
            limits=LIMITS,
            mounts=mounts,
        )
    except SandboxUnavailable as error:
        raise _cannot_run(why_none(error), error.hint) from error
    said = outcome.output.decode("utf-8", "replace").strip()
    if outcome.exit_code == COULD_NOT_COPY:
        raise _cannot_run(said[-TAIL_CHARS:], "The copy is in memory, 512 MB at most.")
    if outcome.stopped_by:
        said = f"{said}\nIt was ended: too much {outcome.stopped_by}."
    if outcome.is_success:
        return RanTests(has_passed=True)
    return RanTests(has_passed=False, output=said[-TAIL_CHARS:], failed=frozenset(_FAILED.findall(said)))


def _environment(folder: Path) -> dict[str, str]:
    """Return variables for the tests: the project's own environment comes first, if it has one."""
    for name in (".venv", "venv"):
        if (folder / name / "bin").is_dir():
            path = f"{folder / name / 'bin'}:/usr/local/bin:/usr/bin:/bin"
            return {"PATH": path, "VIRTUAL_ENV": str(folder / name)}
    return {"PATH": f"{sysconfig.get_path('scripts')}:/usr/local/bin:/usr/bin:/bin"}


def _interpreters(folder: Path) -> list[Path]:
    """Return where the Python is that the project's environment was made with, if it is the user's own.

    The repository may have brought the file that says so: what is no Python is not shown.
    """
    for name in (".venv", "venv"):
        try:
            lines = (folder / name / "pyvenv.cfg").read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        homes = [line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "home"]
        found = [Path(os.path.realpath(home)).parent for home in homes if home]
        return [path for path in found if _is_python(path) and not path.is_relative_to("/usr")]
    return []


def _is_python(prefix: Path) -> bool:
    """Return whether a folder is one that Python was installed into, and nothing above the user's home."""
    has_library = any(prefix.glob("lib*/py*/os.py"))  # of CPython, conda's and PyPy's
    return has_library and not Path.home().resolve().is_relative_to(prefix)


_COPY = """
import json, os, shutil, sys

given = json.loads(sys.argv[1])


def copy(source, target):
    os.makedirs(target, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            to = os.path.join(target, entry.name)
            if os.path.lexists(to):
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), to)
            elif entry.name in given["linked"] and entry.is_dir():
                os.symlink(entry.path, to)
            elif entry.is_dir():
                copy(entry.path, to)
            elif entry.is_file():
                shutil.copy2(entry.path, to)


try:
    copy(given["original"], given["folder"])
    for name, path in given["new"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = os.stat(path).st_mode if os.path.exists(path) else 0o644
        with open(name, "rb") as new, open(path, "wb") as file:
            file.write(new.read())
        os.chmod(path, mode)
except OSError as error:
    print("The workspace could not be copied:", error)
    sys.exit(COULD_NOT_COPY)
os.chdir(given["folder"])
os.execv("/bin/sh", ["sh", "-c", given["line"]])
"""
