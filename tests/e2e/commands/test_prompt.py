"""`vivace -p`: one message without a terminal, its formats and exit codes, and what a kill leaves behind."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent.loop.working import call
from tests.e2e.conftest import SHOUTED, TASK
from tests.e2e.terminal import PROGRAM, Done, Home, kill_hard, wait_until
from vivace.agent.events.base import SCHEMA

LONG = "".join(f"{number} bottles of beer. " for number in range(70))


def run_with_input(home: Home, given: str, *args: str) -> Done:
    """Run with this piped in."""
    done = subprocess.run(
        [*PROGRAM, *args], cwd=home.work, env=home.env(), input=given, capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def transcript(home: Home) -> list[dict[str, Any]]:
    """Return the lines of the only transcript, without their checksums."""
    (file,) = (home.folder / "state" / "conversations").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "crc"} for line in lines]


def answer_of(lines: list[dict[str, Any]]) -> str:
    return "".join(line["text"] for line in lines if line["type"] == "answer.delta")


def test_a_question_is_answered_on_stdout(home: Home) -> None:
    """Nothing but the answer is on stdout."""
    home.script({"": "It is a test."})
    done = home.run("-p", "What is this?")
    assert (done.code, done.out) == (0, "It is a test.\n")


def test_what_is_piped_in_is_read(home: Home) -> None:
    """Both the message and the piped text reach the model; piped text alone is the message."""
    home.script({"KeyError": "A key is missing.", "": "Hello."})
    assert run_with_input(home, "KeyError: 'a'\n", "-p", "What went wrong?").out == "A key is missing.\n"
    assert run_with_input(home, "What is a KeyError?", "-p").out == "A key is missing.\n"
    empty = run_with_input(home, "", "-p")
    assert (empty.code, empty.out) == (2, "")
    assert "empty" in empty.err


def test_one_object_and_one_line_each(home: Home) -> None:
    """json is the result; stream-json is the transcript's own lines and then the result."""
    home.script({"": "It is a test."})
    result = home.run("-p", "What is this?", "--output-format", "json").event("result")
    assert (result["text"], result["status"], result["exit_code"]) == ("It is a test.", "completed", 0)
    again = home.run("-p", "And what is that?", "--output-format", "stream-json", "--resume", result["id"])
    assert again.events[0]["type"] == "conversation.resumed"
    assert again.events[-1]["type"] == "result"
    assert answer_of(again.events) == "It is a test."
    kept = transcript(home)
    assert kept[0] | {"type": "conversation.started", "schema": SCHEMA} == kept[0]
    assert kept[-len(again.events) + 1 :] == again.events[:-1]


def test_a_conversation_is_continued(home: Home) -> None:
    """--continue takes the last one of this folder; where there is none, it says so."""
    home.script({"And that": "I remember.", "": "Hello."})
    missing = home.run("-p", "And that?", "--continue")
    assert (missing.code, "no conversation" in missing.err) == (2, True)
    home.run("-p", "What is this?")
    assert home.run("-p", "And that?", "--continue").out == "I remember.\n"
    assert [line["text"] for line in transcript(home) if line["type"] == "turn.started"] == [
        "What is this?",
        "And that?",
    ]


@pytest.fixture
def editing(home: Home) -> Home:
    (home.work / "task.py").write_text("def show(task):\n    print(task.title)\n")
    home.script({"You locate code": "`show`", "Task: ": SHOUTED, "": "Hello."})
    return home


def test_an_edit_needs_a_yes(editing: Home) -> None:
    """Without --yes the diff is shown, nothing is written, and the exit code is 4; with it the file is."""
    file = editing.work / "task.py"
    before = file.read_text()
    asked = editing.run("-p", "make @task.py:show shout")
    assert (asked.code, file.read_text()) == (4, before)
    assert "+    print(task.title.upper())" in asked.out
    written = editing.run("-p", "make @task.py:show shout", "--yes")
    assert (written.code, "upper" in file.read_text()) == (0, True)


def test_turns_are_limited(editing: Home) -> None:
    """An edit that must first find its part needs two turns: with one it ends with 5, and nothing is lost."""
    (editing.work / "task.py").write_text(
        "def show(task):\n    print(task.title)\n\n\ndef other():\n    pass\n"
    )
    done = editing.run("-p", "make @task.py shout", "--max-turns", "1", "--yes")
    assert (done.code, "--max-turns" in done.err) == (5, True)
    assert "upper" not in (editing.work / "task.py").read_text()
    assert editing.run("-p", "What is this?", "--max-turns", "1").code == 0


def test_errors_are_results_too(home: Home) -> None:
    """What is wrong has its exit code and, for programs, its object."""
    home.script({"": "Hello."})
    both = home.run("-p", "x", "--resume", "a", "--continue")
    assert both.code == 2
    unknown = home.run("-p", "What is it?", "--resume", "nothing", "--output-format", "json")
    assert (unknown.code, unknown.event("result")["error"]["code"]) == (2, "conversation_not_found")
    assert home.run("--yes", "status").code == 2


def test_a_conversation_that_is_open_is_busy(home: Home) -> None:
    """A second process is told so, with 75."""
    home.script({"long": LONG, "": "Hello."}, step_ms=100)  # longer than a process takes to start
    with home.start("-p", "Tell me something long", "--output-format", "stream-json") as first:
        assert first.stdout is not None
        conversation = json.loads(first.stdout.readline())["id"]
        while json.loads(first.stdout.readline())["type"] != "answer.delta":
            pass  # until the server is there: it could not be stopped before
        refused = home.run("-p", "And now?", "--resume", conversation)
        assert (refused.code, "open in another program" in refused.err) == (75, True)
        first.kill()
        first.communicate()


def test_kill_9_loses_nothing_that_was_shown(home: Home) -> None:
    """All that was printed is in the transcript, a cut line is healed, and the conversation goes on."""
    home.script({"And then": "I go on.", "long": LONG}, step_ms=3)
    with home.start("-p", "Tell me something long") as process:
        assert process.stdout is not None
        shown = process.stdout.read(300)
        kill_hard(process.pid)
        shown += process.stdout.read()
    lines = transcript(home)
    assert answer_of(lines).startswith(shown.rstrip("\n"))
    assert lines[-1]["type"] != "turn.ended"
    (file,) = (home.folder / "state" / "conversations").glob("*.jsonl")
    file.write_bytes(file.read_bytes() + b'{"type":"answer.del')
    done = home.run("-p", "And then what?", "--continue")
    assert (done.code, done.out) == (0, "I go on.\n")
    assert answer_of(transcript(home)).endswith("I go on.")


def test_the_server_dies_under_an_answer(home: Home) -> None:
    """The answer is begun again with a new server, and the conversation before it is still known."""
    home.script({"And then": "I go on.", "long": LONG}, step_ms=3)
    with home.start("-p", "Tell me something long", "--output-format", "stream-json") as process:
        assert process.stdout is not None
        lines = []
        while not lines or lines[-1]["type"] != "answer.delta":
            lines.append(json.loads(process.stdout.readline()))
        kill_hard(home.status()["pid"])
        rest, _ = process.communicate(timeout=400)
    lines += [json.loads(line) for line in rest.splitlines()]
    assert [line["why"] for line in lines if line["type"] == "attempt.abandoned"] == ["server_gone"]
    assert (process.returncode, lines[-1]["text"]) == (0, LONG)
    assert home.run("-p", "And then what?", "--continue").out == "I go on.\n"


def test_ctrl_c_keeps_the_partial(home: Home) -> None:
    """An interrupt ends with 130, and the turn is in the transcript as stopped."""
    home.script({"long": LONG}, step_ms=3)
    with home.start("-p", "Tell me something long") as process:
        assert process.stdout is not None
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=400)
    assert process.returncode == 130
    wait_until(lambda: transcript(home)[-1]["type"] == "turn.ended", "the turn's end")
    assert transcript(home)[-1]["status"] == "stopped"


def test_without_a_server_file_the_history_is_sent(home: Home) -> None:
    """A server that has forgotten everything is sent the whole conversation."""
    home.script({"And that": "I remember.", "What is this": "Hello."})
    home.run("-p", "What is this?")
    home.run("stop")
    for database in Path(home.folder / "state").rglob("vivace.db*"):
        database.unlink()
    done = home.run("-p", "And that?", "--continue", "--output-format", "json")
    assert done.event("result")["text"] == "I remember."
    assert done.event("result")["total_tokens"] > 200


def test_a_model_with_tools_writes_only_after_yes(home: Home) -> None:
    """Without --yes its change is refused and the exit code says so; with it the diff is on stdout."""
    (home.work / "a.py").write_text("x = 1\n")
    edit = call("edit", path="a.py", old_text="x = 1", new_text="x = 2")
    home.script({"": "Done."}, steps=[edit, "That was it."], context_tokens=60000)
    done = home.run("-p", "make x two")
    assert (done.code, done.out) == (4, "That was it.\n"), done.err
    assert "edit refused" in done.err
    assert (home.work / "a.py").read_text() == "x = 1\n"
    done = home.run("-p", "make x two", "--yes")
    assert done.code == 0, done.err
    assert "+x = 2\n" in done.out
    assert done.out.endswith("That was it.\n")
    assert (home.work / "a.py").read_text() == "x = 2\n"


def test_a_place_that_is_not_clear_is_code_4_and_answered_by_a_number(home: Home) -> None:
    """The first three places stand on stderr, nothing is written; `--continue` with a number chooses one."""
    names = ("ant", "bee", "cat")  # of one length: the scripted model finds all alike
    for name in names:
        (home.work / name).mkdir()
        (home.work / name / "task.py").write_text(TASK)
    home.script({"You locate code": "`show`", "Task: ": SHOUTED, "": "Hello."})
    done = home.run("-p", "make `show` shout", "--yes")
    assert (done.code, "1. ant/task.py:" in done.err) == (4, True), done.err
    assert [(home.work / name / "task.py").read_text() for name in names] == [TASK] * 3
    done = home.run("-p", "2", "--continue", "--yes")
    assert done.code == 0, done.err
    changed = [name for name in names if (home.work / name / "task.py").read_text() != TASK]
    assert len(changed) == 1
