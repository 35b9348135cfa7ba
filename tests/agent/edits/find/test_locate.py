"""Which unit an instruction means, with a scorer that says what the test wants."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find import evidence
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.locate import (
    OUTLINE_UNITS,
    best_candidate,
    candidates,
    locate,
    locate_messages,
    outline,
    shortlist,
)
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.places.ranking import nats_for_units
from vivace.agent.prompting import Message, read_prompt
from vivace.errors import UnitNotFound

CODE = '''"""Shop."""

import os

LIMIT = 3


class Cart:
    items: list

    def add(self, item):
        self.items.append(item)

    def _total(self):
        return sum(self.items)


def pay(cart, card):
    return card.charge(cart._total())
'''


class Scorer:
    """Prefers the candidates that contain `wanted`, and remembers what it was asked."""

    def __init__(self, wanted: str = "", nats: float = 20.0) -> None:
        self.wanted, self.nats = wanted, nats
        self.asked: list[list[str]] = []

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        assert messages[-1]["status"] == "in_progress"
        self.asked.append(candidates)
        return [0.0 if self.wanted and self.wanted in text else -self.nats for text in candidates]


def parsed(text: str, name: str = "shop.py") -> tuple[SourceFile, list[Unit]]:
    source = source_from_bytes(Path(name), text.encode())
    return source, list_units(source, language_for(source.path))


async def found(scorer: Scorer, instruction: str, text: str = CODE, name: str = "shop.py") -> Unit:
    source, units = parsed(text, name)
    return await locate(scorer, source, units, instruction)


async def test_the_unit_that_the_model_ranks_highest_wins() -> None:
    """The candidate with the best score is the unit."""
    assert (await found(Scorer("Cart.add`"), "log every call")).qualified_name == "Cart.add"


async def test_names_are_scored_and_nothing_is_generated() -> None:
    """The candidates are the units' names, the top and the whole file, each closed by a backtick."""
    scorer = Scorer()
    await found(scorer, "tidy up")
    assert scorer.asked == [["Cart`", "Cart.add`", "Cart._total`", "pay`", "top`", "all`"]]


async def test_a_new_unit_is_a_candidate_only_where_something_is_added() -> None:
    """`new after` is offered for "add …" and not for "fix …"."""
    scorer = Scorer()
    await found(scorer, "fix the sum")
    await found(scorer, "add refunds")
    assert "new after" not in scorer.asked[0]
    assert "new after" in scorer.asked[1]


async def test_something_new_goes_after_the_unit_that_scores_best() -> None:
    """When `new after` wins, the place is scored too, and lies directly below that unit."""
    unit = await found(Scorer("new after"), "add a refund")
    assert unit.kind == "new"
    unit = await found(Scorer("new after pay`"), "add a function for refunds")
    assert (unit.kind, unit.name) == ("new", "new after pay")


async def test_a_method_is_added_behind_a_method_and_a_function_behind_no_method() -> None:
    """The instruction's word for the thing decides where it may be."""
    scorer = Scorer("new after")
    await found(scorer, "add a method that empties the cart")
    await found(scorer, "add a function that empties a cart")
    assert scorer.asked[1] == ["new after Cart.add`", "new after Cart._total`"]
    assert scorer.asked[3] == ["new after Cart`", "new after pay`"]


def test_the_smaller_unit_wins_a_near_tie() -> None:
    """Of two candidates nearly as likely, the one with fewer lines is taken."""
    source, units = parsed(CODE)
    by_label = {candidate.label: candidate for candidate in candidates(source, units)}
    pair = [by_label["Cart"], by_label["Cart.add"]]
    assert best_candidate(pair, [-1.0, -1.2]).label == "Cart.add"
    assert best_candidate(pair, [-1.0, -2.0]).label == "Cart"


def test_the_whole_file_is_a_candidate_only_up_to_150_lines() -> None:
    """A long file is never rewritten as one piece unasked."""
    short, long = parsed(CODE), parsed(CODE + "\n" * 140)
    assert "all" in [candidate.label for candidate in candidates(*short)]
    assert "all" not in [candidate.label for candidate in candidates(*long)]


async def test_a_short_text_without_units_is_its_own_unit() -> None:
    """Plain text of few lines is rewritten whole, without asking the model which part."""
    scorer = Scorer()
    unit = await found(scorer, "translate", "Guten Tag\n", "note.txt")
    assert (unit.kind, scorer.asked) == ("file", [])


async def test_a_long_text_without_units_asks_for_lines() -> None:
    """Nothing to choose from: the user is told to name lines."""
    with pytest.raises(UnitNotFound) as caught:
        await found(Scorer(), "translate", "word\n" * 400, "note.txt")
    assert "note.txt:1-40" in caught.value.hint


def test_two_units_of_one_name_have_two_labels() -> None:
    """A property's getter and setter can be told apart."""
    text = "class A:\n    def x(self):\n        pass\n\n    def x(self, y):\n        pass\n"
    source, units = parsed(text)
    labels = [candidate.label for candidate in candidates(source, units)]
    assert len(labels) == len(set(labels))


def test_the_outline_is_one_line_a_unit() -> None:
    """The model sees signatures, indented as they are nested, and the top in one line."""
    assert outline(*parsed(CODE)).splitlines() == [
        "top: import os, LIMIT = 3",
        "class Cart",
        "    def add(self, item)",
        "    def _total(self)",
        "def pay(cart, card)",
    ]


def test_a_large_file_is_cut_to_what_the_instruction_speaks_of() -> None:
    """Of many units the outline keeps those that share words with the instruction, in file order."""
    text = (
        "".join(f"def job{i}():\n    return {i}\n\n\n" for i in range(60)) + "def send_invoice():\n    pass\n"
    )
    source, units = parsed(text)
    kept = shortlist(source, units, "the invoice must be sent twice")
    assert len(kept) == OUTLINE_UNITS
    assert kept[-1].name == "send_invoice"
    assert [unit.first_line for unit in kept] == sorted(unit.first_line for unit in kept)


async def test_words_of_the_instruction_decide_where_the_model_cannot() -> None:
    """With a model that finds all candidates alike, a unit named in the instruction wins."""
    assert (await found(Scorer(nats=0.0), "charge the card twice")).name == "pay"


def test_a_class_does_not_get_the_words_of_its_methods() -> None:
    """`append` stands in a method: it speaks for the method, not for the class around it."""
    source, units = parsed(CODE)
    nats = dict(zip((u.qualified_name for u in units), nats_for_units(source, units, "append"), strict=True))
    assert nats["Cart.add"] > 0
    assert nats["Cart"] == 0


@pytest.mark.parametrize(
    ("instruction", "new", "whole"),
    [
        ("add a method that counts", True, False),
        ("add a new class for coupons", True, False),
        ("add a docstring to pay", False, False),
        ("rename Cart everywhere", False, True),
        ("document every function", False, True),
        ("implement the function pay", False, False),
    ],
)
def test_phrases_that_ask_for_something_new_or_for_everything(
    instruction: str, new: bool, whole: bool
) -> None:
    """Some phrases leave no doubt."""
    assert (evidence.nats_for_new(instruction) > 0) == new
    assert (evidence.nats_for_file(instruction) > 0) == whole


@pytest.mark.parametrize(
    ("instruction", "may"),
    [
        ("let pay return None for an empty cart, and add type hints", False),
        ("add a docstring to pay", False),
        ("add an optional parameter currency", False),
        ("add missing error handling to pay", False),
        ("add a field price to Cart", False),
        ("add a check function for prices", True),
        ("add logging to pay and write a helper for refunds", True),
        ("add type hints, then add a refund", True),
        ("add a test case for pay", True),
        ("add a refund", True),
    ],
)
def test_what_is_added_to_code_that_is_there_is_nothing_new(instruction: str, may: bool) -> None:
    """Type hints go into a function, a refund may be one."""
    assert evidence.may_add(instruction) == may


def test_the_prompt_ends_inside_the_answer() -> None:
    """The examples come first, then this file, then a backtick for the model to go on from."""
    source, units = parsed(CODE)
    messages = locate_messages(source, units, "log it")
    assert tuple(messages[:-2]) == read_prompt("locate")
    assert messages[-2]["content"].endswith("Task: log it")
    assert messages[-1] == {"role": "assistant", "content": "`", "status": "in_progress"}


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("pay should refuse an empty card", "pay"),
        ("make pay return the receipt", "pay"),
        ("log the card in pay", "pay"),
        ("Cart._total should be cached as card items are", "Cart._total"),
    ],
)
async def test_where_words_are_sure_no_model_is_asked(instruction: str, name: str) -> None:
    """The unit that a request is about, by its name alone, is chosen without a score."""
    scorer = Scorer("Cart.add`")
    assert (await found(scorer, instruction)).qualified_name == name
    assert scorer.asked == []


@pytest.mark.parametrize(
    "instruction",
    [
        "charge the card twice",
        "add a function that refunds like pay",
        "pay and add are slow",
        "pay what the cart has",  # a verb
        "Cart.add and pay should log",
    ],
)
async def test_where_words_are_not_sure_the_model_is_asked(instruction: str) -> None:
    """Words that fit several units, or something new, leave the choice to the scores."""
    scorer = Scorer("Cart.add`")
    await found(scorer, instruction)
    assert scorer.asked
