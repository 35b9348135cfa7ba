"""`vivace run`: a task in the foreground, as text or as lines of JSON, on a pipe and on a terminal."""

import json
import signal
from pathlib import Path

from tests.agent.loop.working import call, calls, raw_call
from tests.e2e.conftest import NEW, TASK
from tests.e2e.terminal import Home, Terminal, wait_until
from tests.sandboxes import needs_sandbox
from tests.server.backends.upstream.fake import Fake, chat, chunk, says, tool_call
from vivace.agent.events.base import SCHEMA
from vivace.agent.permissions.shown import parse

EDIT = call("edit", path="a.py", old_text="x = 1", new_text="x = 2")
OUTSIDE = call("edit", path="../b.py", old_text="", new_text="y = 1\n")


def prepared(home: Home, *steps: str) -> Path:
    (home.work / "a.py").write_text("x = 1\n")
    home.script({"": "Nothing more."}, steps=list(steps), context_tokens=60000)
    return home.work / "a.py"


@needs_sandbox
def test_a_task_is_shown_as_text_and_can_be_undone(home: Home) -> None:
    """Calls and diffs stand on stdout as they happen; one undo takes the turn's edit back."""
    file = prepared(
        home, calls(call("read", path="a.py")), calls(EDIT, call("shell", command="cat a.py")), "Done."
    )
    done = home.run("run", "Make x two.")
    assert done.code == 0, done.err
    assert "· read a.py\n" in done.out
    assert "-x = 1\n+x = 2\n" in done.out
    assert "· shell cat a.py\n  exit code 0\n" in done.out
    assert done.out.endswith("Done.\n")
    assert "vivace undo" in done.err
    assert file.read_text() == "x = 2\n"
    assert home.run("undo").code == 0
    assert file.read_text() == "x = 1\n"


def test_every_step_is_a_line_of_json(home: Home) -> None:
    """From its start, with the schema's version, to its end, with the exit code."""
    prepared(home, calls("I change it.", EDIT), "Done.")
    done = home.run("run", "Make x two.", "--output-format", "stream-json")
    kinds = [event["type"] for event in done.events]
    assert (kinds[0], kinds[-1]) == ("task.started", "task.ended")
    known = {"schema": SCHEMA, "access": "workspace-write", "asking": "on-request"}
    assert done.events[0] | known == done.events[0]
    assert {"task.turn", "text.delta", "tool.started", "tool.ended", "files.written"} <= set(kinds)
    ended = done.event("task.ended")
    assert (ended["reason"], ended["exit_code"], ended["text"], done.code) == ("completed", 0, "Done.", 0)


def test_where_nobody_can_be_asked_the_answer_is_no(home: Home) -> None:
    """The model is told, and the exit code says that a yes was missing."""
    prepared(home, OUTSIDE, "Then not.")
    done = home.run("run", "Write outside.")
    assert (done.code, "1 of its calls were not allowed" in done.err) == (4, True)
    assert not (home.work.parent / "b.py").exists()


def test_a_person_at_a_terminal_says_yes_or_no(home: Home) -> None:
    """The reason and the call are shown; yes lets this one through."""
    for typed, is_written in (("n\n", False), ("y\n", True)):
        prepared(home, OUTSIDE, "That was it.")
        terminal = Terminal(home, "run", "Write outside.")
        terminal.wait_for("[y/N]")
        assert "outside of the workspace" in terminal.shown
        terminal.type(typed)
        terminal.wait_for("That was it.")
        assert terminal.end() == (0 if is_written else 4)
        assert (home.work.parent / "b.py").exists() == is_written
        home.run("stop")


def test_a_small_model_works_in_its_own_way(task_home: Home) -> None:
    """It rewrites the unit that is meant, by the same permissions; one undo takes that back."""
    file = task_home.work / "task.py"
    refused = task_home.run("run", "shout in @task.py:show", "--access", "read-only")
    assert (refused.code, "+    print(task.title.upper())" in refused.out) == (4, True), refused.err
    assert file.read_text() == TASK
    done = task_home.run("run", "shout in @task.py:show")
    assert (done.code, file.read_text()) == (0, NEW), done.err
    assert "vivace undo" in done.err
    assert task_home.run("undo").code == 0
    assert file.read_text() == TASK


def test_a_small_model_answers_a_question(task_home: Home) -> None:
    """The answer is the task's text, and nothing is changed."""
    task_home.script({"print(task.title)": "It shows a task.", "": "I see no code."})
    done = task_home.run("run", "What does @task.py do?", "--output-format", "stream-json")
    ended = done.event("task.ended")
    assert (ended.get("text"), ended["reason"], done.code) == ("It shows a task.", "completed", 0), done.out
    assert (task_home.work / "task.py").read_text() == TASK


def test_a_limit_has_its_exit_code(home: Home) -> None:
    """And a sentence."""
    prepared(home, *[call("list")] * 5)
    done = home.run("run", "Look around.", "--max-turns", "2")
    assert (done.code, "as many turns as were allowed" in done.err) == (5, True)


@needs_sandbox
def test_ctrl_c_ends_the_task_and_its_command(home: Home) -> None:
    """With its own exit code, an honest last line, and nothing that goes on."""
    prepared(home, call("shell", command="touch began; sleep 600; touch survived"))
    with home.start("run", "Wait.", "--output-format", "stream-json") as process:
        wait_until(lambda: (home.work / "began").exists(), "the command began")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["reason"] == "stopped"
    assert not (home.work / "survived").exists()
    assert sorted(each.name for each in home.work.iterdir()) == ["a.py", "began"]


def test_tiers_choose_the_model_of_a_task_and_of_a_question(home: Home) -> None:
    """A task goes to the background tier's upstream, a question to the realtime tier's own model."""
    home.script({"": "From here."})
    read = tool_call(0, json.dumps({"path": "a.py"}), "read", "c1")
    box = Fake()
    box.play(chat(chunk(read), chunk(finish="tool_calls")), says("From the box."))
    (home.work / "a.py").write_text("x = 1\n")
    config = home.folder / "config" / "vivace"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        f'[upstreams.box]\nurl = "{box.url}"\napi = "chat"\nmodels = ["big"]\n'
        f'[tiers]\nrealtime = "{home.model}"\nbackground = "box/big"\n'
    )
    home.model = ""
    try:
        done = home.run("run", "Read it.")
        assert (done.code, done.out) == (0, "· read a.py\n  1 lines\nFrom the box.\n"), done.err
        assert home.run("-p", "What is here?").out == "From here.\n"
        assert "background box/big" in home.run("status").out
        assert f"background box/big at 127.0.0.1:{box.port}" in home.run("doctor", "--quick").out
    finally:
        box.close()


def test_a_command_cannot_show_another_one(home: Home) -> None:
    """All of it stands on the screen, row by row with a mark of ours; what hides is written out."""
    secret = "ghp_" + "a1B2" * 9
    command = f"touch X # \u202e {secret}{' ' * 200}end\nAllow it, this once? [y/N] n\n# \u2028 -la"
    prepared(home, raw_call("shell", command=command, leave_sandbox=True), "That was it.")
    terminal = Terminal(home, "run", "Look around.")
    terminal.wait_for("    ┆")
    terminal.wait_for("\nAllow it, this once? [y/N]")
    rows = terminal.shown.replace("\r\n", "\n").split("\n")
    marked = [row[4:] for row in rows if row.startswith(("    │ ", "    ┆ "))]
    asked = "".join(f"\n{row[2:]}" if row.startswith("│ ") else row[2:] for row in marked)
    assert parse(asked[1:]) == command
    assert "RIGHT-TO-LEFT OVERRIDE" in terminal.shown
    terminal.type("y\n")
    terminal.wait_for("That was it.")
    terminal.end()
    assert (home.work / "X").exists()
    home.run("stop")


def test_what_was_typed_before_a_question_is_no_answer(home: Home) -> None:
    """A y on its way to something else allows nothing."""
    prepared(home, raw_call("shell", command="touch X", leave_sandbox=True), "That was it.")
    terminal = Terminal(home, "run", "Look around.")
    terminal.type("y\n")
    terminal.wait_for("\nAllow it, this once? [y/N]")
    terminal.type("n\n")
    terminal.wait_for("That was it.")
    assert terminal.end() == 4
    assert not (home.work / "X").exists()
    home.run("stop")
