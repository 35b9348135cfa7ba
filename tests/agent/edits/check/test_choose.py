"""Which of several proposals is taken."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.check.choose import Candidate, Choice, choose, examples_for
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import find_unit
from vivace.agent.edits.proposal import FileProposal, make_proposal

OLD = "def double(x):\n    return x\n"
INSTRUCTION = "double(2) should be 4, double(0) should be 0"

needs_sandbox = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")


def proposal(new: str, instruction: str = INSTRUCTION) -> FileProposal:
    source = source_from_bytes(Path("app.py"), OLD.encode())
    unit = find_unit(list_units(source, PYTHON), "double")
    return make_proposal(source, unit, instruction, new.encode())


def body(expression: str) -> str:
    return f"def double(x):\n    return {expression}\n"


def chosen(*candidates: Candidate, runs_examples: bool = False) -> Choice:
    return asyncio.run(choose(candidates, runs_examples=runs_examples))


def test_the_likeliest_that_can_be_used_is_taken() -> None:
    """What changes nothing, or has a problem, is passed over however likely it is."""
    unchanged = Candidate(proposal(OLD), -0.01)
    broken = Candidate(proposal("def double(x:\n    return x\n"), -0.02)
    unlikely = Candidate(proposal(body("x + 1")), -0.9)
    likely = Candidate(proposal(body("x * 2")), -0.5)
    choice = chosen(unchanged, broken, unlikely, likely)
    assert choice.proposal is likely.proposal
    assert (choice.answers, choice.examples) == (2, 0)


def test_one_that_breaks_nothing_is_taken() -> None:
    """However likely an answer with a fault is."""
    faulty = Candidate(replace(proposal(body("x * two")), faults=("`two` is not defined.",)), -0.1)
    sound = Candidate(proposal(body("x * 2")), -0.9)
    choice = chosen(faulty, sound)
    assert (choice.proposal, choice.others) == (sound.proposal, (faulty.proposal,))


def test_without_a_usable_one_the_first_is_told() -> None:
    """The first answer's own problem is what the user reads."""
    first = Candidate(proposal(OLD), -0.01)
    assert chosen(first, Candidate(proposal("def double(x:\n"), -0.3)).proposal is first.proposal


def test_equal_answers_count_once() -> None:
    """Two branches that come to the same text are one answer."""
    same = [Candidate(proposal(body("x * 2")), nats) for nats in (-0.5, -0.6)]
    assert chosen(*same).answers == 1


@needs_sandbox
def test_examples_come_before_likelihood() -> None:
    """An answer for which more of the instruction's examples hold is taken, though it is less likely."""
    likely = Candidate(proposal(body("x + 2")), -0.1)
    right = Candidate(proposal(body("x * 2")), -0.9)
    choice = chosen(likely, right, runs_examples=True)
    assert choice.proposal is right.proposal
    assert (choice.examples, choice.held) == (2, 2)


@needs_sandbox
def test_an_answer_that_never_ends_loses_its_examples_only() -> None:
    """A candidate that hangs is ended, and the others are still counted."""
    endless = Candidate(proposal("def double(x):\n    while True:\n        pass\n"), -0.1)
    right = Candidate(proposal(body("x * 2")), -0.9)
    assert chosen(endless, right, runs_examples=True).proposal is right.proposal


def test_nothing_is_run_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bubblewrap the likeliest is taken, and the choice says that nothing was run."""
    monkeypatch.setenv("PATH", "/nonexistent")
    likely = Candidate(proposal(body("x + 2")), -0.1)
    choice = chosen(likely, Candidate(proposal(body("x * 2")), -0.9), runs_examples=True)
    assert choice.proposal is likely.proposal
    assert choice.examples == 0


def test_examples_are_those_of_the_instruction_and_the_docstring() -> None:
    """A docstring's doctests count as well, and only for functions of the unit."""
    text = (
        'def double(x):\n    """\n    >>> double(3)\n    6\n    >>> other(1)\n    1\n    """\n    return x\n'
    )
    source = source_from_bytes(Path("app.py"), text.encode())
    unit = find_unit(list_units(source, PYTHON), "double")
    found = examples_for(make_proposal(source, unit, INSTRUCTION, text.encode()))
    assert [each.call for each in found] == ["double(3)", "double(2)", "double(0)"]


@needs_sandbox
@pytest.mark.parametrize(
    ("instruction", "taken"),
    [
        ("Fix the bug in double.", "x * 2"),
        ("double gives wrong results", "x * 2"),
        ("Refactor double.", "(x)"),
        ("Make double nicer.", "(x)"),
    ],
)
def test_a_fault_that_is_mended_shows(instruction: str, taken: str) -> None:
    """Where a fault is to be mended, code that does as before comes last; elsewhere it may be taken."""
    likely = Candidate(proposal(body("(x)"), instruction), -0.1)
    mended = Candidate(proposal(body("x * 2"), instruction), -0.9)
    choice = chosen(likely, mended, runs_examples=True)
    assert choice.proposal.new_bytes.decode() == body(taken)
