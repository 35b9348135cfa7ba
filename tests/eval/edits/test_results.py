"""The file of results: what was done is found again, whatever ended the run."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import FileProblem, UsageError
from vivace.eval.edits.results import Answer, Results, Score, replaced


def answer_of(task: str, code: str | None = "x = 1\n") -> Answer:
    return Answer("humanevalfix", "m", "low", task, code, seconds=1.5)


def score_of(task: str) -> Score:
    return Score("humanevalfix", "m", "low", task, "passed")


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    """Answers and verdicts, by set, model, effort and task."""
    with Results(tmp_path / "new" / "r.jsonl") as results:
        results.add(answer_of("a"))
        results.add(score_of("a"))
        results.add(answer_of("b"))
        results.add(answer_of("c", code=None))
    with Results(tmp_path / "new" / "r.jsonl") as again:
        assert again.answers == results.answers
        assert again.scores == results.scores
        assert again.is_unjudged(answer_of("b").key)
        assert not again.is_unjudged(answer_of("a").key)
        assert not again.is_unjudged(answer_of("c").key)  # a refusal needs no verdict
        assert not again.is_unjudged(answer_of("never asked").key)


@pytest.mark.parametrize("kept_bytes", [-1, -2, -40])
def test_a_line_that_was_cut_is_dropped(tmp_path: Path, kept_bytes: int) -> None:
    """A run that was killed while it wrote goes on; the next line is whole again."""
    path = tmp_path / "r.jsonl"
    with Results(path) as results:
        results.add(answer_of("a"))
        results.add(answer_of("b"))
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with Results(path) as results:
        assert {key[3] for key in results.answers} == {"a"}
        results.add(answer_of("c"))
    with Results(path) as results:
        assert {key[3] for key in results.answers} == {"a", "c"}


def test_an_answer_given_again_needs_a_new_verdict(tmp_path: Path) -> None:
    """The old verdict was on another text."""
    with Results(tmp_path / "r.jsonl") as results:
        results.add(answer_of("a"))
        results.add(score_of("a"))
        results.add(answer_of("a", "x = 2\n"))
        assert results.is_unjudged(answer_of("a").key)


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    """The second is refused."""
    with Results(tmp_path / "r.jsonl"), pytest.raises(UsageError, match="Another run"):
        Results(tmp_path / "r.jsonl")


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """It is named, with the line, and not a byte of it is changed."""
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nmore")
    with pytest.raises(FileProblem, match="line 1"):
        Results(path)
    assert path.read_text() == "my notes\nmore"


def test_it_can_begin_anew(tmp_path: Path) -> None:
    """Nothing of the earlier run is left."""
    with Results(tmp_path / "r.jsonl") as results:
        results.add(answer_of("a"))
        results.forget()
        results.add(answer_of("b"))
    with Results(tmp_path / "r.jsonl") as results:
        assert {key[3] for key in results.answers} == {"b"}


TEXTS = st.lists(st.sampled_from(["a", "b", "", "c"]), max_size=8).map("\n".join)


@given(TEXTS, TEXTS)
def test_replaced_lines_make_the_text_again(before: str, after: str) -> None:
    """Of any two texts; where they are the same nothing is replaced."""
    change = replaced("a.py", before, after)
    assert change.applied_to(before) == after
    assert before != after or not change.lines
