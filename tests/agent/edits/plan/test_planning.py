"""Which units an instruction needs, as far as its words and the code say, and what the scores add."""

from dataclasses import replace
from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.plan.planning import make_plan, plan_by_evidence
from vivace.agent.edits.scope import EditScope
from vivace.agent.prompting import Message
from vivace.errors import PlaceUnclear

SHOP = """from prices import total

RATE = 2


class Item:
    count: int = 0

    def price(self, rate):
        return self.count * rate

    def show(self):
        return f"{self.count}"


def total(items, rate=RATE):
    return sum(item.price(rate) for item in items)


def report(items):
    print(total(items))


def load(path):
    return open(path).read()


if __name__ == "__main__":
    report([])
    print(total([], rate=3))
"""


def scope_of(text: str = SHOP, name: str = "shop.py") -> EditScope:
    source = source_from_bytes(Path(name), text.encode())
    language = language_for(Path(name))
    return EditScope(source, language, list_units(source, language), None)


class Scores:
    """A scorer with a fixed score for each name; what it does not know is far behind."""

    def __init__(self, **nats: float) -> None:
        self.nats, self.asked = nats, 0

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        del messages
        self.asked += 1
        return [self.nats.get(label.rstrip("`").replace(".", "_"), -50.0) for label in candidates]


@pytest.mark.parametrize(
    ("instruction", "names"),
    [
        ("rename total to amount", ["line 1", "total", "report", "lines 28-30"]),
        ("Rename the function `total()` to `amount`.", ["line 1", "total", "report", "lines 28-30"]),
        ("Rename the parameter `rate` of total to factor", ["total", "lines 28-30"]),
        ("rename the variable rate in total to factor", ["total"]),
        ("Rename the field count of Item to number.", ["Item"]),
        ("rename load to read and report to show_all", ["load", "report", "lines 28-30"]),
        ("rename nothing_like_this to other", []),
        ("add type hints to report and load", ["report", "load"]),
        ("Item.show, report and `load` should not print", ["Item.show", "report", "load"]),
        ("call load and total in report", []),
        ("use `load` instead of `total` in report", []),
        ("Add docstrings to every function", ["Item.price", "Item.show", "total", "report", "load"]),
        ("add a docstring to all methods of Item", ["Item.price", "Item.show"]),
        ("replace `print` by `log` everywhere", ["report", "lines 28-30"]),
        ("make load skip a missing file", []),
        ("add a function that saves the items", []),
    ],
)
def test_words_and_code_tell_which_units_are_meant(instruction: str, names: list[str]) -> None:
    """Renamings, lists, "every" and "everywhere" name units; one that is only called or used is not meant."""
    steps = plan_by_evidence([scope_of()], instruction)
    assert [step.unit.qualified_name for step in steps] == names


def test_more_units_than_a_plan_may_have_are_no_plan() -> None:
    """Of a file with twenty functions not each is rewritten: the model chooses, as without a plan."""
    text = "\n\n".join(f"def f{number}():\n    return total" for number in range(20))
    assert plan_by_evidence([scope_of(text)], "rename total to amount") == []


def test_what_is_renamed_is_looked_for_in_all_files() -> None:
    """The plan has the units of every file that uses the name, file by file."""
    other = scope_of("from shop import total\n\n\ndef show():\n    return total([])\n", "app.py")
    steps = plan_by_evidence([scope_of("def total(x):\n    return x\n"), other], "rename total to amount")
    found = [(step.scope.source.path.name, step.unit.qualified_name) for step in steps]
    assert found == [("shop.py", "total"), ("app.py", "line 1"), ("app.py", "show")]


def test_a_large_class_is_not_rewritten_for_one_of_its_fields() -> None:
    """The statement of the class's body is a unit, and so are the methods that use the name."""
    body = "".join(f"    field_{number} = {number}\n" for number in range(60))
    text = f"class Big:\n    count = 0\n{body}\n    def show(self):\n        return self.count\n"
    steps = plan_by_evidence([scope_of(text)], "rename count to number")
    assert [step.unit.qualified_name for step in steps] == ["line 2", "Big.show"]


async def test_one_unit_costs_one_score() -> None:
    """Where the words are silent and the scores clear, one unit is rewritten and the model asked once."""
    scores = Scores(load=0.0, report=-3.0)
    steps = await make_plan(scores, [scope_of()], "skip what is missing")
    assert [step.unit.qualified_name for step in steps] == ["load"]
    assert scores.asked == 1


async def test_units_that_score_nearly_as_well_are_tried_too() -> None:
    """A second unit near the first is a guess, in the order of the file."""
    steps = await make_plan(Scores(load=0.0, report=-0.1), [scope_of()], "be careful with what is missing")
    assert [(step.unit.qualified_name, step.need) for step in steps] == [
        ("report", "guess"),
        ("load", "must"),
    ]


async def test_a_unit_that_is_not_clear_is_asked_about_where_nobody_named_the_file() -> None:
    """The first three are named. In a file that the user named, the near ones are tried instead."""
    scores = Scores(load=0.0, report=-0.1, total=-0.2)
    found = replace(scope_of(), is_found=True)
    with pytest.raises(PlaceUnclear) as caught:
        await make_plan(scores, [found], "be careful with what is missing")
    assert caught.value.places == ("shop.py:load", "shop.py:report", "shop.py:total")
    assert await make_plan(Scores(load=0.0, report=-3.0), [found], "be careful with what is missing")


async def test_a_long_text_that_favours_other_units_is_asked_about() -> None:
    """However sure the scores are: the chosen unit and those that the words favour are named."""
    scores = Scores(load=0.0, report=-9.0, total=-9.0)
    found = replace(scope_of(), is_found=True, favoured=("total", ""))
    with pytest.raises(PlaceUnclear) as caught:
        await make_plan(scores, [found], "be careful with what is missing")
    assert caught.value.places[:2] == ("shop.py:load", "shop.py:total")
    favoured = replace(found, favoured=("load", ""))
    assert [step.unit.name for step in await make_plan(scores, [favoured], "what is missing")] == ["load"]


async def test_a_class_in_a_long_text_is_asked_about() -> None:
    """One of its methods is meant more often, however sure the scores are."""
    long = replace(scope_of(), is_found=True, favoured=("Item", "Item.show"))
    with pytest.raises(PlaceUnclear) as caught:
        await make_plan(Scores(Item=0.0, load=-9.0), [long], "be careful with what is missing")
    assert caught.value.places[:2] == ("shop.py:Item", "shop.py:Item.show")


async def test_a_long_text_changes_one_unit() -> None:
    """Other names in it are a part of its story, also where it lists them."""
    long = replace(scope_of(), is_found=True, favoured=("load", ""))
    scores = Scores(load=0.0, report=-0.1)
    for text in (
        "skip what is missing, as report and load do",
        "in `report` and `load` skip what is missing",
    ):
        assert [step.unit.name for step in await make_plan(scores, [long], text)] == ["load"]


async def test_a_named_unit_may_score_less() -> None:
    """A unit that the instruction names is meant though another one scores better; a called one is not."""
    scores = Scores(Item=0.0, report=-4.0, load=-4.0)
    steps = await make_plan(scores, [scope_of()], "Give Item a unit that report shows, like load does")
    assert [step.unit.qualified_name for step in steps] == ["Item", "report"]


async def test_the_class_of_a_method_is_only_where_it_stands() -> None:
    """ "show in Item" means the method, though the class is named, too; a verb is no name."""
    scores = Scores(Item_show=0.0, Item=-1.0, load=-1.0)
    steps = await make_plan(scores, [scope_of()], "Item.show in Item should load the count first")
    assert [step.unit.qualified_name for step in steps] == ["Item.show"]


async def test_a_class_covers_its_methods() -> None:
    """A method is not rewritten apart from its class."""
    scores = Scores(Item=0.0, Item_show=-0.1)
    steps = await make_plan(scores, [scope_of()], "Give Item a unit and let Item.show show it")
    assert [step.unit.qualified_name for step in steps] == ["Item"]


LOADERS = "".join(
    f"def {name}(path):\n    pass\n\n\n"
    for name in ("load_csv", "load_json", "load", "parse_row", "parseCell")
)


@pytest.mark.parametrize(
    ("instruction", "names"),
    [
        ("all the loaders should close their file", ["load_csv", "load_json"]),
        ("let both parsers refuse an empty text", ["parse_row", "parseCell"]),
        ("every writer should flush", []),
        ("all users should be told", []),
    ],
)
def test_actors_are_the_functions_that_do_it(instruction: str, names: list[str]) -> None:
    """ "All the loaders" are the functions whose names begin with that verb and go on, two at least."""
    steps = plan_by_evidence([scope_of(LOADERS, "files.py")], instruction)
    assert [step.unit.name for step in steps] == names
