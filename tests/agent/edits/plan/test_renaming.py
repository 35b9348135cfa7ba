"""Renamings that need no model."""

import pytest

from tests.agent.edits.plan.test_planning import SHOP, scope_of
from vivace.agent.edits.plan.planning import plan_by_evidence

GO = """package bank

type Account struct {
	Amount int
}

func (a *Account) Pay(value int) {
	a.Amount -= value // Amount
}
"""


def renamed(text: str, instruction: str, name: str = "shop.py") -> str | None:
    """The file with the texts of all steps in it, or None if a model is needed for one."""
    lines = text.splitlines(keepends=True)
    steps = plan_by_evidence([scope_of(text, name)], instruction)
    assert steps
    for step in reversed(steps):
        if step.new_text is None:
            return None
        lines[step.unit.first_line - 1 : step.unit.last_line] = [step.new_text]
    return "".join(lines)


@pytest.mark.parametrize(
    "instruction",
    [
        "rename total to amount",
        "Rename the function `total` to `amount` everywhere.",
        "rename total() to amount!",
    ],
)
def test_a_renaming_alone_is_exact(instruction: str) -> None:
    """Every identifier is changed, and nothing else."""
    assert renamed(SHOP, instruction) == SHOP.replace("total", "amount")


def test_a_string_and_a_comment_are_no_names() -> None:
    """Only identifiers change."""
    text = 'def total(x):\n    """The total."""\n    return x  # total\n\n\nprint(total(1), "total")\n'
    new = 'def amount(x):\n    """The total."""\n    return x  # total\n\n\nprint(amount(1), "total")\n'
    assert renamed(text, "rename total to amount") == new


def test_a_line_with_several_names_and_other_alphabets() -> None:
    """Columns are counted in bytes, and names beside each other do not disturb each other."""
    text = "def total(ä):\n    return total(ä) + total(ö, 'é') + total(x)\n"
    assert renamed(text, "rename total to t") == text.replace("total", "t")


def test_a_field_of_one_class() -> None:
    """A member of the named class is changed wherever it is used."""
    assert renamed(SHOP, "Rename the field count of Item to number.") == SHOP.replace("count", "number")
    go = GO.replace("Amount int", "Balance int").replace("a.Amount", "a.Balance")
    assert renamed(GO, "Rename the field Amount of Account to Balance", "bank.go") == go


@pytest.mark.parametrize(
    ("text", "instruction"),
    [
        (SHOP, "rename total to amount and make it faster"),
        (SHOP, "rename total to load"),
        (SHOP, "rename the parameter rate of total to factor"),
        ("class A:\n    n = 0\n\n\nclass B:\n    n = 1\n", "rename the field n of A to m"),
        ("class A:\n    n = 0\n\n\ndef f(n):\n    return n\n", "rename the field n of A to m"),
    ],
)
def test_what_is_not_only_a_renaming_is_the_models(text: str, instruction: str) -> None:
    """More than a renaming, a name that is taken, a local name, and a name that two things have."""
    assert renamed(text, instruction) is None
