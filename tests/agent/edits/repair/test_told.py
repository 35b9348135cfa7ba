"""A repair that is told the exact failure: its words, its request, and when it is taken."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.edits.repair.conftest import Bench
from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import find_unit
from vivace.agent.edits.proposal import FileProposal, make_proposal
from vivace.agent.edits.repair.told import FailedExample, told_request, what_failed, what_is_wrong
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.agent.events.edit import AnswersCompared, RepairStarted
from vivace.errors import EditRejected

OLD = "import os\n\n\ndef double(x):\n    return x\n"
GOOD = "def double(x):\n    return x * 2\n"
BROKEN = "def double(x):\n    return (x * 2\n"
needs_sandbox = pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")


def proposal(new_unit: str) -> FileProposal:
    source = source_from_bytes(Path("app.py"), OLD.encode())
    unit = find_unit(list_units(source, PYTHON), "double")
    new = OLD.replace("def double(x):\n    return x\n", new_unit)
    return make_proposal(source, unit, "double it", new.encode())


def complaints(bench: Bench) -> list[str]:
    return [event.complaint for event in bench.shown.events if isinstance(event, RepairStarted)]


@pytest.mark.unit
def test_the_complaint_counts_lines_from_the_first_of_the_piece() -> None:
    """The model has seen the piece only, so line 5 of the file is line 2 for it."""
    said = what_is_wrong(proposal(BROKEN))
    assert said.startswith("Your answer cannot be used. The result does not parse as Python: line 2")
    assert what_is_wrong(proposal(GOOD)) == ""


@pytest.mark.unit
def test_failed_examples_are_told_as_call_result_and_expectation() -> None:
    """A long value is cut, and at most four examples are told."""
    said = what_failed([FailedExample("f(2)", "4", "3")] + [FailedExample("f(0)", "1" * 999, "0")] * 9)
    assert said.startswith("Your answer is wrong. f(2) gave 3, expected 4.")
    assert said.count("gave") == 4
    assert len(said) < 1000


@pytest.mark.unit
def test_the_request_begins_like_the_one_before() -> None:
    """All that was read and written for the answer comes first again, word for word."""
    source = source_from_bytes(Path("app.py"), OLD.encode())
    units = list_units(source, PYTHON)
    request = rewrite_request(source, units, find_unit(units, "double"), "double it")
    told = told_request(request, "(x):\n    return x", "It is wrong.")
    *asked, begun = request.messages
    assert told.messages[: len(asked)] == asked
    assert told.messages[len(asked)]["content"] == f"{begun['content']}(x):\n    return x\n```"
    assert told.messages[-1] == begun


async def test_an_answer_that_does_not_parse_is_mended(bench: Callable[..., Bench]) -> None:
    """No answer can be used: the model is told why, and its next answer is written."""
    desk = bench(OLD, BROKEN, GOOD)
    await desk.edit("double it", "medium")
    assert desk.file.read_text() == OLD.replace("return x", "return x * 2")
    [complaint] = complaints(desk)
    assert "does not parse" in complaint
    last = desk.model.waterfalls[-1]
    assert last.cached_tokens > last.new_tokens, "the request before it is not read again"


async def test_a_repair_that_is_no_better_is_not_taken(bench: Callable[..., Bench]) -> None:
    """The edit is refused with the first answer's own problem, and the file stays."""
    desk = bench(OLD, BROKEN, BROKEN)
    with pytest.raises(EditRejected, match="does not parse"):
        await desk.edit("double it", "medium")
    assert len(complaints(desk)) == 1
    assert desk.file.read_text() == OLD


async def test_low_effort_repairs_nothing(bench: Callable[..., Bench]) -> None:
    """One pass, and no more."""
    desk = bench(OLD, BROKEN, GOOD)
    with pytest.raises(EditRejected):
        await desk.edit("double it", "low")
    assert complaints(desk) == []


@needs_sandbox
async def test_an_example_that_fails_is_told(bench: Callable[..., Bench]) -> None:
    """At high effort the model reads what the call gave; the answer is taken for which more examples hold."""
    desk = bench(OLD, "def double(x):\n    return x + 1\n", GOOD)
    await desk.edit("double(2) should be 4, double(1) should be 2", "high")
    assert complaints(desk) == ["Your answer is wrong. double(2) gave 3, expected 4."]
    assert desk.file.read_text() == OLD.replace("return x", "return x * 2")
    compared = next(event for event in desk.shown.events if isinstance(event, AnswersCompared))
    assert (compared.examples, compared.held) == (2, 2)


@needs_sandbox
async def test_a_repair_with_fewer_examples_is_not_taken(bench: Callable[..., Bench]) -> None:
    """What holds for more examples stays."""
    desk = bench(OLD, "def double(x):\n    return x + 1\n", "def double(x):\n    return 7\n")
    await desk.edit("double(2) should be 4, double(1) should be 2", "high")
    assert "return x + 1" in desk.file.read_text()


async def test_an_answer_that_changes_nothing_is_not_told_so(bench: Callable[..., Bench]) -> None:
    """It would be given again: the edit ends with what is known."""
    desk = bench(OLD, "def double(x):\n    return x\n", GOOD)
    with pytest.raises(EditRejected, match="changed nothing"):
        await desk.edit("double it", "medium")
    assert complaints(desk) == []


UNDEFINED = "def double(x):\n    return frobnicate(x)\n"


async def test_an_answer_with_undefined_names_is_told_so(bench: Callable[..., Bench]) -> None:
    """Where answers are compared, a name that nothing gives is told, and an answer without it is taken."""
    desk = bench(OLD, UNDEFINED, GOOD)
    await desk.edit("double it", "high")
    assert complaints(desk) == ["Your answer cannot run. `frobnicate` is not defined in app.py."]
    assert desk.file.read_text() == OLD.replace("return x", "return x * 2")


async def test_a_repair_with_other_undefined_names_is_not_taken(bench: Callable[..., Bench]) -> None:
    """Another undefined name is no repair: the first answer is shown, and not written."""
    desk = bench(OLD, UNDEFINED, UNDEFINED.replace("frobnicate", "transmogrify"))
    with pytest.raises(EditRejected, match="frobnicate"):
        await desk.edit("double it", "high")
    assert desk.file.read_text() == OLD
