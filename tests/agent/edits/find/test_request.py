"""What an instruction asks for, apart from what it describes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.find import evidence
from vivace.agent.edits.find.request import request_in

DOCSTRING = "Write a function that adds every number in a list.\nImplement a class for each of all methods."


def test_a_pasted_specification_asks_for_nothing_new() -> None:
    """A docstring below a colon cannot make the edit add a function or rewrite the file."""
    instruction = f"Fix the bug in total. It should do this:\n{DOCSTRING}"
    assert request_in(instruction) == "Fix the bug in total."
    assert not evidence.may_add(instruction)
    assert evidence.nats_for_new(instruction) == 0.0
    assert evidence.nats_for_file(instruction) == 0.0


@pytest.mark.parametrize(
    ("instruction", "asked"),
    [
        ("Fix load. The docs say: write a function.", "Fix load."),
        ("Fix load. Then add a method close.", "Fix load. Then add a method close."),
        ("Fix load.\nAlso remove every print.", "Fix load. Also remove every print."),
        ("The name is long. Add a method short.", "The name is long. Add a method short."),
        ("Add a function:\ndef f(): ...", "Add a function"),
        ("Correct `a.b` in 3.5 seconds", "Correct `a.b` in 3.5 seconds"),
    ],
)
def test_what_asks_for_more_is_kept(instruction: str, asked: str) -> None:
    """A later sentence counts where it asks for more, and everything counts where nothing is mended."""
    assert request_in(instruction) == asked


@given(st.text())
def test_a_request_keeps_the_order_of_its_words(instruction: str) -> None:
    """The request says nothing that the instruction does not say, and in the same order."""
    rest = iter("".join(instruction.split()))
    assert all(letter in rest for letter in "".join(request_in(instruction).split()))
