"""`vivace edit` where something goes wrong: bad input, a lost server, a changed or full disk, Ctrl-C."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import NEW, SHOUTED, TASK
from tests.e2e.terminal import Home, kill_hard, wait_until


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["missing.py", "x"], "does not exist"),
        (["task.py:shwo", "x"], "Did you mean show?"),
        (["task.py:3-99", "x"], "has 9 lines"),
        (["task.py", "   "], "instruction is empty"),
        (["data.bin", "x"], "binary"),
        (["latin.txt", "x"], "UTF-8"),
        (["huge.txt", "x"], "2"),
        ([".", "x"], "folder"),
        (["task.py", "x", "--effort", "extreme"], "effort"),
        (["task.py", "x", "--nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_a_usage_error(task_home: Home, args: list[str], said: str) -> None:
    """What the user got wrong is said in one sentence, without a model, with exit code 2."""
    (task_home.work / "data.bin").write_bytes(b"\0\1\2")
    (task_home.work / "latin.txt").write_bytes(b"caf\xe9\n")
    (task_home.work / "huge.txt").write_bytes(b"x\n" * 1_100_000)
    done = task_home.run("edit", *args, "--yes")
    assert done.code == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_wrong_name_is_said_before_a_model_is_fetched(home: Home) -> None:
    """Nothing is downloaded and no server is started for a request that cannot be done."""
    (home.work / "task.py").write_text(TASK)
    home.extra["VIVACE_OFFLINE"] = "1"  # with no model here, anything that needs one would end with 3
    done = home.run("edit", "task.py:shwo", "shout", "--yes")
    assert (done.code, "Did you mean show?" in done.err) == (2, True)
    assert home.status()["running"] is False


def test_without_a_terminal_it_does_not_ask(task_home: Home) -> None:
    """No terminal and no --yes: said before any work, exit code 2."""
    done = task_home.run("edit", "task.py", "shout")
    assert (done.code, "--yes" in done.err) == (2, True)
    assert task_home.status()["running"] is False


def test_a_read_only_file_is_refused_before_the_model_works(task_home: Home) -> None:
    """A file without write permission: exit code 1, and no token was generated for it."""
    (task_home.work / "task.py").chmod(0o444)
    done = task_home.run("edit", "task.py", "shout", "--yes", "--json")
    assert done.code == 1
    assert [event["type"] for event in done.events] == ["error"]


def test_a_file_that_changes_meanwhile_keeps_the_users_change(task_home: Home) -> None:
    """The user saves while the model writes: the edit is refused and the user's bytes stay."""
    task_home.script({"Task: shout": SHOUTED}, step_ms=30)
    file = task_home.work / "task.py"
    with task_home.start("edit", "task.py:show", "shout", "--yes", "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["type"] == "delta":
                file.write_text("mine = 1\n")
                break
        out, _ = process.communicate()
    assert process.returncode == 4
    assert "changed" in json.loads(out.splitlines()[-1])["message"]
    assert file.read_text() == "mine = 1\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_in_the_middle_leaves_the_file_alone(task_home: Home, sent: signal.Signals) -> None:
    """Ctrl-C ends with 130, kill -9 with the signal; the file stays the old one, and the turn ends."""
    task_home.script({"Task: shout": SHOUTED}, step_ms=50)
    with task_home.start("edit", "task.py:show", "shout", "--yes", "--json") as process:
        assert process.stdout is not None
        next(line for line in process.stdout if json.loads(line)["type"] == "delta")
        process.send_signal(sent)
        process.communicate()
    assert process.returncode == (130 if sent == signal.SIGINT else -signal.SIGKILL)
    assert (task_home.work / "task.py").read_text() == TASK
    wait_until(lambda: task_home.status()["engine"]["turns"] == 0, "the turn's end")


def test_a_server_that_dies_in_the_middle_is_replaced_once(task_home: Home) -> None:
    """kill -9 of the server while the model writes: a new one does the edit, and the file is right."""
    task_home.script({"Task: shout": SHOUTED}, step_ms=30)
    task_home.run("ask", "wake up")
    server = task_home.status()["pid"]  # known beforehand: the answer may be short
    with task_home.start("edit", "task.py:show", "shout", "--yes", "--json") as process:
        assert process.stdout is not None
        next(line for line in process.stdout if json.loads(line)["type"] == "delta")
        kill_hard(server)
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert "trying once more" in err
    assert (task_home.work / "task.py").read_text() == NEW


def test_an_engine_that_dies_in_the_middle_is_not_noticed(task_home: Home) -> None:
    """The engine kills itself half-way: the edit comes out the same."""
    task_home.script({"Task: shout": SHOUTED}, die_at_token=30, die_mark=str(task_home.folder / "died"))
    done = task_home.run("edit", "task.py:show", "shout", "--yes")
    assert done.code == 0, done.err
    assert (task_home.folder / "died").exists()
    assert (task_home.work / "task.py").read_text() == NEW


def test_a_unit_larger_than_the_context_says_how_to_narrow(home: Home) -> None:
    """Too large for the context: how large, what to name instead, exit code 2."""
    body = "".join(f"    x{i} = {i}\n" for i in range(600))
    (home.work / "big.py").write_text(f"def big():\n{body}\n\ndef small():\n    pass\n")
    home.script({"Task:": "no"}, context_tokens=3000)
    done = home.run("edit", "big.py:big", "change it", "--yes")
    assert done.code == 2, done.err
    assert "601 lines" in done.err
    assert "3000" in done.err
    assert "big.py:NAME" in done.err


def test_escape_sequences_from_a_model_do_not_reach_the_terminal(task_home: Home) -> None:
    """A hostile answer cannot steer the terminal."""
    evil = "```python\ndef show(task):\n    print('\x1b]0;owned\x07')\n```"
    task_home.script({"Task: shout": evil})
    done = task_home.run("edit", "task.py:show", "shout", "--diff")
    assert "\x1b]0" not in done.out
    assert "\x07" not in done.out


def test_no_space_for_the_file_keeps_the_old_one(task_home: Home) -> None:
    """The disk is full when the edit is written: exit code 1, the old file is whole."""
    file = task_home.work / "task.py"
    limited = "import resource,runpy,sys,signal;signal.signal(signal.SIGXFSZ,signal.SIG_IGN);"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE,(64,64));sys.argv=['vivace']+sys.argv[1:];"
    limited += "runpy.run_module('vivace',run_name='__main__')"
    task_home.run("ask", "wake up")  # the server must be able to write its own files
    runner = Path(task_home.folder / "limited.py")
    runner.write_text(limited)
    done = subprocess.run(
        [sys.executable, str(runner), "edit", "task.py:show", "shout", "--yes"],
        cwd=task_home.work,
        env=task_home.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_text() == TASK
    assert [path.name for path in task_home.work.iterdir()] == ["task.py"]
