"""The request for a rewrite: what the model sees, and how its answer is opened."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit, file_unit, find_unit, lines_unit, new_unit_after
from vivace.agent.edits.write.context import surroundings
from vivace.agent.edits.write.rewrite import opening_for, rewrite_request

CODE = """import json
import os


class Store:
    path: str

    @property
    def size(self) -> int:
        return os.stat(self.path).st_size

    def load(self):
        return json.load(open(self.path))


def unrelated():
    pass


def copy(store: Store):
    return store.load()
"""


def parsed(text: str = CODE, name: str = "store.py") -> tuple[SourceFile, list[Unit]]:
    source = source_from_bytes(Path(name), text.encode())
    return source, list_units(source, language_for(source.path))


@pytest.mark.parametrize(
    ("name", "instruction", "opening"),
    [
        ("copy", "close the store", "def copy"),
        ("Store.load", "close the file", "    def load"),
        ("Store.size", "in kilobytes", "    @property\n    def size"),
        ("Store", "add a field", "class Store"),
        ("copy", "rename copy to clone", "def"),
        ("Store.load", "rename copy to clone", "    def load"),
    ],
)
def test_the_answer_is_opened_up_to_the_units_name(name: str, instruction: str, opening: str) -> None:
    """Fence and declaration are given; parameters stay free, and the name too when it is to be renamed."""
    source, units = parsed()
    assert opening_for(source, find_unit(units, name), instruction) == opening


def test_the_last_message_is_the_begun_answer() -> None:
    """The model goes on inside a fence, behind the opening, and stops at the closing fence."""
    source, units = parsed()
    request = rewrite_request(source, units, find_unit(units, "copy"), "close it")
    assert request.messages[-1]["content"] == "```python\ndef copy"
    assert request.messages[-1]["status"] == "in_progress"
    assert request.stop == ["\n```"]


def test_the_unit_and_only_what_it_names_is_sent() -> None:
    """The unit in full, signatures of what it names, and nothing of the unrelated."""
    source, units = parsed()
    asked = rewrite_request(source, units, find_unit(units, "copy"), "close it").messages[-2]["content"]
    assert "return store.load()" in asked
    assert "class Store" in asked
    assert "def load(self)" in asked
    assert "unrelated" not in asked
    assert "json.load(open" not in asked
    assert asked.endswith("Task: close it")


def test_a_method_sees_its_class_and_siblings() -> None:
    """The surroundings of a method are the signatures around it and the file's imports."""
    source, units = parsed()
    around = surroundings(source, units, find_unit(units, "Store.load"), "close it")
    assert around.splitlines()[:2] == ["import json", "import os"]
    assert "class Store" in around
    assert "def size(self) -> int" in around
    assert "def load" not in around


LARGE = (
    '"""Shop.\n\nhow total and pay work: total\n"""\n\n# total: see pay\nimport os\n\n'
    + '__all__ = [\n    "pay",\n]\nRATE = 2\n\n\n'
    + "class Cart:\n    def __init__(self, rate):\n        pass\n\n"
    + "".join(f"    def part_{number}(self, {'wide, ' * 40}end):\n        pass\n\n" for number in range(30))
    + "    def total(self):\n        return self.part_2() * RATE\n\n\n"
    + "def pay(card):\n    return card\n"
)


def test_above_the_first_unit_only_code_is_read() -> None:
    """Docstring, comments and `__all__` of a module say nothing for a rewrite."""
    source, units = parsed(LARGE, "shop.py")
    around = surroundings(source, units, find_unit(units, "Cart.total"), "round it")
    assert around.splitlines()[:2] == ["import os", "RATE = 2"]


def test_of_a_large_class_what_is_named_and_the_nearest_members_are_read() -> None:
    """The class, its constructor, what the unit names, and a few neighbours; long signatures are cut."""
    source, units = parsed(LARGE, "shop.py")
    rows = surroundings(source, units, find_unit(units, "Cart.total"), "round it").splitlines()[3:]
    names = [row.split("(")[0].split()[-2 if "class" in row else -1] for row in rows]
    assert names == ["Cart", "__init__", "part_2", "part_26", "part_27", "part_28", "part_29"]
    assert max(map(len, rows)) < 140


def test_the_whole_file_needs_no_surroundings() -> None:
    """A rewrite of the file sends the file once."""
    source, units = parsed()
    assert surroundings(source, units, file_unit(source), "x") == ""


def test_lines_of_prose_are_sent_alone() -> None:
    """A small model repeats the prose around its lines when it sees it."""
    source, units = parsed("Dear team,\nsee you on monday.\nAda\n", "mail.txt")
    asked = rewrite_request(source, units, lines_unit(source, 2, 2), "on tuesday").messages[-2]["content"]
    assert "see you on monday." in asked
    assert "Dear team" not in asked


def test_text_that_contains_fences_gets_a_longer_fence() -> None:
    """A docstring with a fence in it cannot end the answer early."""
    text = 'def f():\n    """\n```\nexample\n```\n"""\n'
    source, units = parsed(text)
    request = rewrite_request(source, units, units[0], "x")
    assert request.fence == "````"
    assert request.messages[-1]["content"].startswith("````python\n")


def test_a_new_unit_is_shown_what_it_comes_after() -> None:
    """For something new the model sees its neighbour and answers at its indentation."""
    source, units = parsed()
    place = new_unit_after(find_unit(units, "Store.load"))
    request = rewrite_request(source, units, place, "add a method save")
    assert "def load(self):" in request.messages[-2]["content"]
    assert request.opening == "    "


def test_lines_keep_their_indentation() -> None:
    """A selection is opened at the indentation of its first line."""
    source, units = parsed()
    request = rewrite_request(source, units, lines_unit(source, 13, 13), "close it")
    assert request.opening == "        "


def test_the_answer_may_be_longer_than_the_unit_but_not_endless() -> None:
    """The limit grows with the unit."""
    source, units = parsed()
    small = rewrite_request(source, units, find_unit(units, "copy"), "x").max_tokens
    large = rewrite_request(source, units, file_unit(source), "x").max_tokens
    assert 500 < small < large < 2000
