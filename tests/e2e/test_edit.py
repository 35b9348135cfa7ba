"""`vivace edit` from the command line to the file, with a scripted model behind a real server."""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import SHOUTED, TASK
from tests.e2e.terminal import Home, Terminal, kill_hard, wait_until

NEW = TASK.replace("task.title)", "task.title.upper())")


def test_an_edit_with_yes_writes_the_file(task_home: Home) -> None:
    """The unit that the model ranks highest is rewritten, and nothing else in the file."""
    done = task_home.run("edit", "task.py", "shout the title", "--yes")
    assert done.code == 0, done.err
    assert (task_home.work / "task.py").read_text() == NEW
    assert "show" in done.out
    assert "+    print(task.title.upper())" in done.out


def test_diff_writes_nothing(task_home: Home) -> None:
    """--diff shows the change and leaves the file alone, also together with --yes."""
    for flags in (["--diff"], ["--diff", "--yes"]):
        done = task_home.run("edit", "task.py", "shout", *flags)
        assert done.code == 0, done.err
        assert "-    print(task.title)" in done.out
        assert (task_home.work / "task.py").read_text() == TASK


def test_the_waterfall_is_one_line_and_verbose_shows_all_stages(task_home: Home) -> None:
    """After a turn: model, cached + new tokens, first token, tokens; with --verbose every stage."""
    done = task_home.run("edit", "task.py:show", "shout", "--diff", "--verbose")
    assert "cached +" in done.out
    assert "first token" in done.out
    for stage in ("queue", "tokenize", "prefill", "decode", "Enter → token"):
        assert stage in done.out


def test_json_gives_one_event_a_line_and_nothing_else(task_home: Home) -> None:
    """--json with --yes: located, deltas, proposal, waterfall, written; stdout holds nothing but JSON."""
    done = task_home.run("edit", "task.py", "shout", "--json", "--yes")
    kinds = [event["type"] for event in done.events]
    assert kinds[0] == "located"
    assert kinds[-3:] == ["proposal", "waterfall", "written"]
    assert set(kinds[1:-3]) == {"delta"}
    assert (
        "".join(e["text"] for e in done.events if e["type"] == "delta")
        == SHOUTED.partition("def show")[2][:-4]
    )
    assert (task_home.work / "task.py").read_text() == NEW


def test_json_without_yes_writes_nothing(task_home: Home) -> None:
    """A program that did not say yes gets the proposal only."""
    done = task_home.run("edit", "task.py", "shout", "--json")
    assert done.events[-1]["type"] == "not_written"
    assert (task_home.work / "task.py").read_text() == TASK


def test_an_answer_that_does_not_parse_is_shown_and_not_written(task_home: Home) -> None:
    """A broken answer: it is shown, the file is untouched, exit code 1."""
    task_home.script({"Task: shout": "```python\ndef show(task):\n    print(task.title\n```"})
    done = task_home.run("edit", "task.py:show", "shout", "--yes")
    assert done.code == 1
    assert "+    print(task.title" in done.out
    assert "Nothing was written" in done.err
    assert (task_home.work / "task.py").read_text() == TASK


def test_an_answer_that_changes_nothing_says_so(task_home: Home) -> None:
    """The same text again is no edit: exit code 1 and a hint."""
    task_home.script({"Task: shout": "```python\ndef show(task):\n    print(task.title)\n```"})
    done = task_home.run("edit", "task.py:show", "shout", "--yes")
    assert (done.code, "changed nothing" in done.err) == (1, True)


def test_an_answer_without_an_end_is_refused(task_home: Home) -> None:
    """A model that never closes the fence is stopped at its limit, and nothing is written."""
    task_home.script({"Task: shout": "```python\ndef show(task):\n" + "    print(task)\n" * 400})
    done = task_home.run("edit", "task.py:show", "shout", "--yes")
    assert (done.code, "did not end" in done.err) == (1, True)
    assert (task_home.work / "task.py").read_text() == TASK


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
    assert process.returncode == 1
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


def test_undo_takes_the_last_edit_back(task_home: Home) -> None:
    """undo restores the exact bytes, and refuses once the file has changed since."""
    file = task_home.work / "task.py"
    task_home.run("edit", "task.py", "shout", "--yes")
    done = task_home.run("undo")
    assert (done.code, file.read_text()) == (0, TASK)
    task_home.run("edit", "task.py", "shout", "--yes")
    file.write_text(NEW + "# mine\n")
    refused = task_home.run("undo")
    assert refused.code == 1
    assert file.read_text() == NEW + "# mine\n"


def test_an_undo_is_redone_and_listed(task_home: Home) -> None:
    """redo brings the edit back, --list shows its number, --number and --to take it back."""
    file = task_home.work / "task.py"
    task_home.run("edit", "task.py", "shout", "--yes")
    task_home.run("undo")
    redone = task_home.run("redo")
    assert (redone.code, file.read_text()) == (0, NEW), redone.err
    listed = task_home.run("undo", "--list").out
    assert [line.split()[0] for line in listed.splitlines()] == ["3", "2", "1"]
    assert "shout" in listed
    assert (task_home.run("undo", "--number", "1").code, file.read_text()) == (0, TASK)
    assert (task_home.run("undo", "--to", "3").code, file.read_text()) == (0, NEW)
    assert (task_home.run("undo", "--to", "0").code, file.read_text()) == (0, TASK)
    assert (task_home.run("undo", "--number", "99").code, file.read_text()) == (1, TASK)
    assert task_home.run("undo", "--list", "--to", "1").code == 2


def test_undo_without_an_edit_says_so(home: Home) -> None:
    """Nothing to undo: exit code 1 and one sentence."""
    done = home.run("undo")
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert done.err.startswith("vivace: ")


@pytest.mark.parametrize(
    ("name", "old", "unit", "answer", "new"),
    [
        (
            "a.ts",
            "export function twice(n: number) {\r\n  return n + n;\r\n}\r\n",
            "twice",
            "```typescript\nexport function twice(n: number): number {\n  return 2 * n;\n}\n```",
            "export function twice(n: number): number {\r\n  return 2 * n;\r\n}\r\n",
        ),
        (
            "a.go",
            "package a\n\nfunc Twice(n int) int {\n\treturn n + n\n}",
            "Twice",
            "```go\nfunc Twice(n int) int {\n\treturn 2 * n\n}\n```",
            "package a\n\nfunc Twice(n int) int {\n\treturn 2 * n\n}",
        ),
        (
            "a.rs",
            "/// Doubles.\nfn twice(n: i32) -> i32 {\n    n + n\n}\n",
            "twice",
            "```rust\n/// Doubles.\nfn twice(n: i32) -> i32 {\n    2 * n\n}\n```",
            "/// Doubles.\nfn twice(n: i32) -> i32 {\n    2 * n\n}\n",
        ),
        (
            "a.txt",
            "\ufeffone\ntwo ü\nthree",
            "2",
            "````txt\nTWO Ü\n````",
            "\ufeffone\nTWO Ü\nthree",
        ),
    ],
)
def test_other_languages_are_spliced_byte_exactly(
    home: Home, name: str, old: str, unit: str, answer: str, new: str
) -> None:
    """Line ends, tabs, byte order mark and a missing final newline are kept, in any language."""
    file = home.work / name
    file.write_bytes(old.encode())
    home.script({"Task:": answer})
    done = home.run("edit", f"{name}:{unit}", "make it better", "--yes")
    assert done.code == 0, done.err + done.out
    assert file.read_bytes() == new.encode()


def test_something_new_is_put_after_a_unit(task_home: Home) -> None:
    """An instruction that adds something gets a place of its own, with blank lines as the file has them."""
    added = "```python\ndef count(tasks):\n    return len(tasks)\n```"
    task_home.script({"You locate code": "`new after show`", "Task: add": added})
    done = task_home.run("edit", "task.py", "add a function that counts tasks", "--yes")
    assert done.code == 0, done.err
    assert (task_home.work / "task.py").read_text() == TASK + "\n\ndef count(tasks):\n    return len(tasks)\n"


def test_mode_bits_and_links_survive(task_home: Home) -> None:
    """An executable stays executable, and a symbolic link stays a link to the edited file."""
    file = task_home.work / "task.py"
    file.chmod(0o755)
    link = task_home.work / "link.py"
    link.symlink_to("task.py")
    assert task_home.run("edit", "link.py", "shout", "--yes").code == 0
    assert link.is_symlink()
    assert file.read_text() == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


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


def test_y_at_the_question_writes(task_home: Home) -> None:
    """On a terminal the diff grows in colour, y writes the file, exit code 0."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    assert (task_home.work / "task.py").read_text() == TASK
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "\x1b[32m+    print(task.title.upper())" in terminal.shown
    assert (task_home.work / "task.py").read_text() == NEW


def test_n_at_the_question_writes_nothing(task_home: Home) -> None:
    """n leaves the file as it is and says so."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("what\nn\n")
    assert terminal.end() == 0
    assert "Nothing written" in terminal.shown
    assert (task_home.work / "task.py").read_text() == TASK


def test_e_opens_an_editor_and_asks_again(task_home: Home) -> None:
    """e hands the proposal to $EDITOR; what comes back is shown, asked about and written."""
    editor = task_home.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i.bak 's/upper/lower/' \"$1\"\n")
    editor.chmod(0o755)
    task_home.extra["EDITOR"] = str(editor)
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("e\n")
    terminal.wait_for("lower()")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (task_home.work / "task.py").read_text() == NEW.replace("upper", "lower")


def test_an_editor_that_restores_the_old_text_leaves_nothing_to_write(task_home: Home) -> None:
    """e, the old text again, then y: there is nothing to change, which is said, and exit code 0."""
    editor = task_home.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i.bak 's/[.]upper()//' \"$1\"\n")
    editor.chmod(0o755)
    task_home.extra["EDITOR"] = str(editor)
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("e\n")
    terminal.wait_for("nothing to change")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "Nothing written" in terminal.shown
    assert (task_home.work / "task.py").read_text() == TASK
    assert task_home.run("undo").code == 1, "there is nothing to take back either"


def test_h_at_the_question_takes_hunk_by_hunk(task_home: Home) -> None:
    """Each hunk is shown and asked about; what was not taken stays as it was."""
    middle = "".join(f"    step({number})\n" for number in range(8))
    old = f"def show(task):\n    first()\n{middle}    last()\n"
    (task_home.work / "task.py").write_text(old)
    new = old.replace("first", "primo").replace("last", "ultimo")
    task_home.script({"Task: shout": f"```python\n{new}```"})
    terminal = Terminal(task_home, "edit", "task.py:show", "shout")
    terminal.wait_for("[h]unk by hunk")
    terminal.type("h\n")
    terminal.wait_for("(1 of 2)")
    terminal.type("n\n")
    terminal.wait_for("(2 of 2)")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (task_home.work / "task.py").read_text() == old.replace("last", "ultimo")


def test_the_end_of_the_input_is_a_no(task_home: Home) -> None:
    """Ctrl-D instead of an answer writes nothing, and is no traceback."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "Nothing written" in terminal.shown
    assert (task_home.work / "task.py").read_text() == TASK


def test_ctrl_c_at_the_question_ends_with_130(task_home: Home) -> None:
    """Ctrl-C instead of an answer: nothing written, exit code 130."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("\x03")
    assert terminal.end() in (130, -signal.SIGINT)
    assert (task_home.work / "task.py").read_text() == TASK


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
