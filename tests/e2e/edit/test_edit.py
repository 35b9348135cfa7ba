"""`vivace edit` from the command line to the file, with a scripted model behind a real server."""

from tests.e2e.conftest import NEW, SHOUTED, TASK
from tests.e2e.terminal import Home


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
