"""The sets as they are read: instructions, programs, what is left out and what is held out."""

from pathlib import Path

import pytest

from vivace.errors import FileProblem
from vivace.eval.edits.tasks import choose_tasks, read_tasks


def test_a_bug_is_named_with_or_without_what_the_function_should_do(data: Path) -> None:
    """Both sets have the same code; only one has the docstring, in the instruction."""
    plain, told = read_tasks("humanevalfix", data), read_tasks("humanevalfix-doc", data)
    assert [task.code for task in plain] == [task.code for task in told]
    assert plain[0].instruction == "Fix the bug in add."
    assert told[0].instruction == "Fix the bug in add. It should do this:\nadd of both numbers."


def test_the_answer_goes_wherever_its_place_is_marked(data: Path) -> None:
    """EditEval's context has it as code and as a text; without a context the answer stands alone."""
    boxed, alone = read_tasks("editeval", data)
    assert boxed.program(boxed.reference).count("return 2 * x") == 2
    assert alone.program("def get(x):\n    return 1\n").startswith("def get(x):\n    return 1\n")
    assert alone.program("").endswith("check()\n")


def test_a_row_that_fails_by_itself_is_left_out(data: Path) -> None:
    """It would count against every loop."""
    assert [task.name for task in read_tasks("editeval", data)] == ["EditEval/1", "EditEval/2"]


def test_the_same_tasks_are_held_out_and_sampled_every_time(data: Path) -> None:
    """A task's name decides, so both sets of bugs hold out the same ones."""
    tasks = read_tasks("humanevalfix", data)
    kept, held_out = choose_tasks(tasks, None, False), choose_tasks(tasks, None, True)
    assert sorted(kept + held_out, key=tasks.index) == tasks
    assert not any(task.is_held_out for task in kept)
    sample = choose_tasks(tasks, 2, None)
    assert sample == choose_tasks(reversed(tasks), 2, None)[::-1]
    assert len(choose_tasks(tasks, 99, None)) == 3


def test_missing_files_are_told_with_where_to_get_them(tmp_path: Path) -> None:
    """The name of the data and of the setting are in the hint."""
    with pytest.raises(FileProblem) as caught:
        read_tasks("editeval", tmp_path)
    assert "InstructCoder" in caught.value.hint
    assert "evals_dir" in caught.value.hint


def test_a_file_of_something_else_is_refused(data: Path) -> None:
    """Its name is said, and what it should be."""
    (data / "editeval.jsonl").write_text('{"task_id": 1}\n')
    with pytest.raises(FileProblem, match=r"editeval\.jsonl"):
        read_tasks("editeval", data)
