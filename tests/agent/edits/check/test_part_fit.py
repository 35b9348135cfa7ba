"""The answer for a part of a long unit, between the lines around it."""

import pytest

from tests.agent.edits.find.outlines import source_of, units_of
from vivace.agent.edits.check.part_fit import part_proposal
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.edits.write.rewrite import Replaced, Rewrite

TEXT = """def f(rows):
    total = 0
    count = 0
    for row in rows:
        if row.ok:
            total += row.amount
            count += 1
    print(total)
    print(count)
    return total
"""


def proposed(
    answer: str,
    first: int = 4,
    last: int = 7,
    *,
    text: str = TEXT,
    instruction: str = "count all rows",
    replaced: tuple[Replaced, ...] = (),
) -> FileProposal:
    source = source_of("a.py", text)
    (unit,) = units_of("a.py", text)
    line = source.lines[first - 1]
    part = Unit("part", "f", "f", first, last, indent=line[: len(line) - len(line.lstrip())])
    request = Rewrite([], "```", "", 100, part=part, replaced=replaced)
    return part_proposal(source, PYTHON, unit, request, answer, instruction)


def text_of(proposal: FileProposal) -> str:
    return proposal.new_bytes.decode()


NEW = "    for row in rows:\n        total += row.amount\n        count += 1\n"
WHOLE = TEXT.replace(
    "        if row.ok:\n            total += row.amount\n            count += 1\n",
    "        total += row.amount\n        count += 1\n",
)


def test_only_the_part_is_replaced() -> None:
    """All other lines of the unit keep their bytes, and the proposal is the whole unit's."""
    proposal = proposed(NEW)
    assert text_of(proposal) == WHOLE
    assert (proposal.unit.name, proposal.problems) == ("f", ())


@pytest.mark.parametrize(
    "more", ["    print(total)\n    print(count)\n", "    print(total)\n    print(count)\n    return total\n"]
)
def test_lines_below_that_come_again_are_dropped(more: str) -> None:
    """An answer that goes on with what stands below the part ends where the part did."""
    assert text_of(proposed(NEW + more)) == WHOLE


def test_lines_below_an_empty_line_are_dropped_too() -> None:
    """The empty line at the end of a part stays, and what comes again below it goes."""
    text = TEXT.replace("    print(total)\n", "\n    print(total)\n")
    whole = WHOLE.replace("    print(total)\n", "\n    print(total)\n")
    answer = NEW + "\n    print(total)\n    print(count)\n"
    assert text_of(proposed(answer, 4, 8, text=text)) == whole


def test_an_answer_that_went_on_below_its_part_replaces_what_it_copied() -> None:
    """A change further down is kept, and nothing stands there twice."""
    more = "    print(total)\n    log(count)\n    print(count)\n    return total\n"
    whole = WHOLE.replace("    print(count)\n", "    log(count)\n    print(count)\n")
    assert text_of(proposed(NEW + more)) == whole


def test_lines_that_would_stand_twice_are_a_problem() -> None:
    """An answer that copied what stands below and then ended otherwise is not written."""
    text = TEXT.replace("    return total\n", "".join(f"    report_number_{n}(total)\n" for n in range(6)))
    copied = "".join(f"    report_number_{n}(total)\n" for n in range(4))
    problems = proposed(f"{NEW}{copied}    finish()\n", text=text).problems
    assert problems == ("The answer repeats 4 lines that stand below its part.",)


def test_lines_above_that_come_again_are_dropped() -> None:
    """The same for what stands above."""
    assert text_of(proposed("    total = 0\n    count = 0\n" + NEW)) == WHOLE


def test_a_single_line_that_is_there_already_may_be_meant() -> None:
    """One line more that equals its neighbour is no mistake that one can be sure of."""
    assert text_of(proposed(NEW + "    print(total)\n")).count("print(total)") == 2


@pytest.mark.parametrize(
    "answer",
    [
        NEW.replace("\n    ", "\n").replace("    for", "for", 1),  # all at the margin
        NEW.replace("\n    ", "\n"),  # all but the first line
    ],
)
def test_an_answer_at_another_indentation_is_moved(answer: str) -> None:
    """A part in the middle of a function is moved to its place."""
    assert text_of(proposed(answer)) == WHOLE


def test_tabs_of_the_file_are_kept() -> None:
    """An answer indented by spaces takes the tabs of its file."""
    tabs = TEXT.replace("    ", "\t")
    assert text_of(proposed(NEW, text=tabs)) == WHOLE.replace("    ", "\t")


def test_line_ends_of_the_file_are_kept() -> None:
    """A file with CRLF has no other line ends afterwards."""
    assert text_of(proposed(NEW, text=TEXT.replace("\n", "\r\n"))) == WHOLE.replace("\n", "\r\n")


def test_an_empty_part_needs_a_request_to_remove() -> None:
    """Nothing in place of a part is a problem, unless the instruction removes something."""
    assert proposed("", 8, 9).problems == ("The answer is empty.",)
    removed = proposed("", 8, 9, instruction="remove the prints")
    assert removed.problems == ()
    assert "print" not in text_of(removed)


def test_a_fence_inside_is_dropped_at_the_edges() -> None:
    """A fence that the model opened again is no code."""
    assert text_of(proposed(f"```python\n{NEW}```\n")) == WHOLE


def test_what_does_not_parse_is_a_problem() -> None:
    """A part that breaks the file says so, and names the line."""
    assert "does not parse" in proposed("    for row in rows\n        total += (\n").problems[0]


def test_parts_written_before_are_in_the_proposal() -> None:
    """The second part comes on top of the first, whichever stands above."""
    below = Replaced(8, 9, "    print(total, count)\n")
    both = WHOLE.replace("    print(total)\n    print(count)\n", "    print(total, count)\n")
    assert text_of(proposed(NEW, replaced=(below,))) == both
    above = Replaced(2, 3, "    total = count = 0\n")
    assert text_of(proposed(NEW, replaced=(above,))) == WHOLE.replace(
        "    total = 0\n    count = 0\n", "    total = count = 0\n"
    )
