"""The user's own tests: run only if allowed, over a copy, and the first answer that passes is taken."""

import asyncio
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.edits.repair.conftest import Bench
from tests.agent.edits.test_flow import Recorder
from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import find_unit
from vivace.agent.edits.proposal import Proposal, make_proposal
from vivace.agent.edits.repair.passing import judged_by_tests
from vivace.agent.edits.repair.user_tests import AllowedTests, RanTests, run_tests
from vivace.agent.events.edit import EditProposed, UserTestsEnded, UserTestsStarted
from vivace.errors import EditRejected, TestsCannotRun

needs_sandbox = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
OLD = "def double(x):\n    return x\n"
GOOD = "def double(x):\n    return x * 2\n"
WRONG = "def double(x):\n    return x + 1\n"
CHECK = f"{sys.executable} -B -c 'import app; assert app.double(4) == 8, app.double(4)'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "app.py").write_text(OLD)
    return folder


def proposal(folder: Path, new: str) -> Proposal:
    source = read_source(folder / "app.py")
    unit = find_unit(list_units(source, PYTHON), "double")
    return Proposal((make_proposal(source, unit, "double it", new.encode()),))


def run(folder: Path, line: str, new: str = GOOD) -> RanTests:
    return asyncio.run(run_tests(AllowedTests(line, folder), proposal(folder, new)))


@needs_sandbox
def test_the_change_is_in_the_copy_and_nowhere_else(folder: Path) -> None:
    """The tests see the new text at the file's own path; the workspace stays as it was, whatever they do."""
    (folder / "data").mkdir()
    (folder / "data" / "x.txt").write_text("kept")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    line = f"grep -q 'x \\* 2' {folder}/app.py && rm -r data && echo no > app.py && touch new.txt"
    assert run(folder, line) == RanTests(has_passed=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@needs_sandbox
def test_a_test_that_fails_says_why(folder: Path) -> None:
    """The end of its output is kept; an exit code other than 0 is a failure."""
    outcome = run(folder, CHECK, WRONG)
    assert not outcome.has_passed
    assert "AssertionError: 5" in outcome.output
    assert run(folder, CHECK, GOOD).has_passed


@needs_sandbox
def test_large_folders_are_seen_and_not_copied(folder: Path) -> None:
    """An environment or a repository's history can be read, and not be written."""
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref")
    assert run(folder, "grep -q ref .git/HEAD && ! touch .git/x").has_passed
    assert not (folder / ".git" / "x").exists()


@needs_sandbox
def test_there_is_no_network_and_nothing_else_of_the_user(folder: Path, tmp_path: Path) -> None:
    """What the tests can reach is the copy and the system's programs."""
    connect = 'import socket; socket.create_connection(("127.0.0.1", 22), 2)'
    (tmp_path / "secret").write_text("s")
    assert run(folder, f"! cat {tmp_path}/secret && ! {sys.executable} -c '{connect}'").has_passed


@needs_sandbox
def test_a_daemon_in_the_folder_is_not_reached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket answers neither at the folder's own path nor where the original can be read."""
    (folder / "run").mkdir()
    monkeypatch.chdir(folder / "run")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind("a.sock")
        daemon.listen()
        (folder / "t.py").write_text(
            "import os, socket\n"
            f"for place in ('{folder}', '/original'):\n"
            "    try:\n"
            "        os.chdir(place + '/run')\n"
            "        socket.socket(socket.AF_UNIX).connect('a.sock')\n"
            "        raise SystemExit(place + ' answered')\n"
            "    except OSError:\n"
            "        pass\n"
        )
        assert run(folder, f"{sys.executable} -B t.py") == RanTests(has_passed=True)


@needs_sandbox
@pytest.mark.parametrize("name", [".venv", "venv"])
def test_an_environment_cannot_show_another_folder(folder: Path, tmp_path: Path, name: str) -> None:
    """A repository can bring a file that says where its Python is; it has to be one."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(sys.executable)
    (home / "secret").write_text("password")
    (folder / name / "bin").mkdir(parents=True)
    (folder / name / "pyvenv.cfg").write_text(f"home = {home / 'bin'}\n")
    assert run(folder, f"test ! -e {home}/secret") == RanTests(has_passed=True)


@needs_sandbox
def test_an_environment_shows_its_python(folder: Path, tmp_path: Path) -> None:
    """One that its user has made at home, say."""
    prefix = tmp_path / "pythons" / "3.14"
    (prefix / "lib" / "python3.14").mkdir(parents=True)
    (prefix / "lib" / "python3.14" / "os.py").write_text("")
    (prefix / "bin").mkdir()
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "pyvenv.cfg").write_text(f"home = {prefix / 'bin'}\n")
    assert run(folder, f"test -d {prefix}/lib/python3.14") == RanTests(has_passed=True)


def test_what_cannot_be_run_is_said(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file outside of the folder, or no sandbox, is an error with a remedy, and nothing is run."""
    outside = run_tests(AllowedTests("true", tmp_path / "other"), proposal(folder, GOOD))
    with pytest.raises(TestsCannotRun, match="is not below"):
        asyncio.run(outside)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TestsCannotRun) as refused:
        run(folder, "true")
    assert "Or edit without tests" in refused.value.hint


async def test_a_change_that_cannot_be_tested_is_not_written(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever would have written it: yes was said beforehand, and the model is not even asked."""
    desk = bench(OLD, GOOD)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TestsCannotRun):
        await desk.edit("double it", "low", test_command="true")
    assert (desk.file.read_text(), desk.shown.events) == (OLD, [])


@needs_sandbox
async def test_an_answer_that_passes_is_proposed(bench: Callable[..., Bench]) -> None:
    """The tests run before the proposal is shown, and it says how many answers were tried."""
    desk = bench(OLD, GOOD)
    await desk.edit("double it", "low", test_command=CHECK)
    [ended] = [event for event in desk.shown.events if isinstance(event, UserTestsEnded)]
    assert (ended.has_passed, ended.tried) == (True, 1)
    assert ended.in_words == "Tests passed: 1 answer tried."
    kinds = desk.shown.kinds
    assert kinds.index(UserTestsStarted) < kinds.index(UserTestsEnded) < kinds.index(EditProposed)


@needs_sandbox
async def test_a_failure_is_told_and_the_best_answer_stays(bench: Callable[..., Bench]) -> None:
    """Nothing passes: the user reads that, and decides."""
    desk = bench(OLD, WRONG)
    await desk.edit("double it", "low", test_command=CHECK)
    [ended] = [event for event in desk.shown.events if isinstance(event, UserTestsEnded)]
    assert ended.in_words.startswith("Tests failed: 1 answer tried.")
    assert desk.file.read_text() == WRONG


async def test_nothing_is_run_unless_it_was_allowed(bench: Callable[..., Bench]) -> None:
    """Without a command no test is started, at any effort."""
    desk = bench(OLD, GOOD)
    await desk.edit("double it", "xhigh")
    assert UserTestsStarted not in desk.shown.kinds


@needs_sandbox
async def test_another_answer_is_taken_if_it_passes(folder: Path) -> None:
    """The best answer fails and the next one passes: that one is returned."""
    best, other = proposal(folder, WRONG).files[0], proposal(folder, GOOD).files[0]
    shown = Recorder()
    tests = AllowedTests(CHECK, folder)
    found = await judged_by_tests(tests, "high", Proposal((replace(best, others=(other,)),)), shown)
    assert found.files[0].new_bytes == GOOD.encode()
    [ended] = [event for event in shown.events if isinstance(event, UserTestsEnded)]
    assert (ended.has_passed, ended.tried) == (True, 2)


PYTEST = f"""{sys.executable} -B -c '
import app
for name, holds in (("zero", app.double(0) == 0), ("four", app.double(4) == 8)):
    print("PASSED" if holds else "FAILED", "test_app.py::" + name)
raise SystemExit(1)'"""


@needs_sandbox
async def test_what_breaks_tests_that_passed_is_not_written(bench: Callable[..., Bench]) -> None:
    """They pass over the file as it is and fail with the answer: it is shown with that fault."""
    desk = bench(OLD, WRONG)
    with pytest.raises(EditRejected, match="Tests passed before this edit and fail with it"):
        await desk.edit("double it", "low", test_command=CHECK.replace("double(4) == 8", "double(4) == 4"))
    assert desk.file.read_text() == OLD
    assert EditProposed in desk.shown.kinds


@needs_sandbox
async def test_a_test_that_failed_before_is_not_charged(folder: Path) -> None:
    """Of two tests one failed before: the answer that leaves the other alone is taken, without a fault."""
    shift = proposal(folder, "def double(x):\n    return 3 * x\n").files[0]
    best = replace(proposal(folder, WRONG).files[0], others=(shift,))
    tests = AllowedTests(PYTEST, folder)
    found = await judged_by_tests(tests, "high", Proposal((best,)), Recorder())
    assert (found.files[0].new_bytes, found.faults) == (shift.new_bytes, ())
    alone = await judged_by_tests(tests, "low", Proposal((best,)), Recorder())
    assert alone.faults == ("Tests passed before this edit and fail with it: test_app.py::zero.",)
