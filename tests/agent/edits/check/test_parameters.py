"""New parameters go last and have a default, unless the request says otherwise."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.check.parameters import with_new_parameters_last
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import find_unit


def placed(old: str, new: str, instruction: str = "let the caller choose", below: str = "") -> str:
    """Return the first line of the new text of the first unit in a file."""
    source = source_from_bytes(Path("shop.py"), f"{old}\n    pass\n{below}".encode())
    unit = list_units(source, PYTHON)[0]
    made = with_new_parameters_last(source, PYTHON, unit, f"{new}\n    pass\n", instruction)
    return made.removesuffix("\n    pass\n")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("def f(a, b):", "def f(sep, a, b):", "def f(a, b, sep=None):"),
        ("def f(a, b=1):", "def f(a, sep=',', b=1):", "def f(a, b=1, sep=','):"),
        (
            "def f(a, b: int = 1):",
            "def f(a, sep: str, b: int = 1):",
            "def f(a, b: int = 1, sep: str = None):",
        ),
        ("def f(a, *rest):", "def f(sep='', a=0, *rest):", "def f(a=0, sep='', *rest):"),
        ("def f(a, *, k=1):", "def f(a, sep=0, *, k=1):", "def f(a, *, k=1, sep=0):"),
        (
            "def f(a, *, k=1, **more):",
            "def f(sep, a, *, k=1, **more):",
            "def f(a, *, k=1, sep=None, **more):",
        ),
        ("def f(a, /, b):", "def f(sep, a, /, b):", "def f(a, /, b, sep=None):"),
        ("async def f(a) -> int:", "async def f(sep, a) -> int:", "async def f(a, sep=None) -> int:"),
        ("def f(a, b):", "def f(\n    sep,\n    a,\n    b,\n):", "def f(\n    a,\n    b,\n    sep=None,\n):"),
        ("def f():", "def f(sep=(1, 2)):", "def f(sep=(1, 2)):"),
    ],
)
def test_a_new_parameter_goes_last(old: str, new: str, wanted: str) -> None:
    """It stands behind those that were there, or among keyword-only ones, and has a default."""
    assert placed(old, new) == wanted


@pytest.mark.parametrize(
    ("new", "instruction"),
    [
        ("def f(sep='', a=0, b=0):", "add sep as the first parameter"),
        ("def f(a, sep, b):", "add a required parameter sep before b"),
        ("def f(a, b, sep):", "sep is a new parameter without a default"),
        ("def f(x, y, sep):", "rename a to x and b to y"),
        ("def f(b, a, sep):", "swap a and b"),
        ("def f(sep, a,  # what\n      b):", "let the caller choose"),
        ("def f(a, b):", "let the caller choose"),
    ],
)
def test_what_is_asked_for_or_not_plain_stays(new: str, instruction: str) -> None:
    """The request's own place and default go first; renamed parameters and comments are left alone."""
    assert placed("def f(a, b):", new, instruction) == new


@pytest.mark.parametrize(
    ("instruction", "default"),
    [
        ("add a parameter sep, default ','", "','"),
        ("a new parameter that defaults to 2.", "2"),
        ("add a parameter with a default of `True`", "True"),
        ("the separator is a parameter, ';' by default", "';'"),
        ("add a parameter by default the name of the file", "None"),
    ],
)
def test_the_request_names_the_default(instruction: str, default: str) -> None:
    """A literal that the request gives as the default is the default."""
    assert placed("def f(a, b):", "def f(a, b, sep):", instruction) == f"def f(a, b, sep={default}):"


def test_callers_in_the_file_are_rewritten_instead() -> None:
    """A new parameter needs no default where the callers join the plan, or where there can be none."""
    assert placed("def f(a):", "def f(a, sep):", below="\n\nx = f(1)\n") == "def f(a, sep):"
    assert placed("def _f(a):", "def _f(a, sep):") == "def _f(a, sep):"


def test_code_that_expects_none_gets_it() -> None:
    """Where the new code asks whether the parameter was given, it need not be given."""
    new = "def f(a, sep):\n    return a if sep is None else sep"
    assert placed("def f(a):", new, below="\n\nx = f(1)\n").startswith("def f(a, sep=None):")


def test_methods_of_a_rewritten_class_are_looked_at_too() -> None:
    """In the new text of a class each method that was there keeps its callers."""
    source = source_from_bytes(Path("shop.py"), b"class Cart:\n    def add(self, item):\n        pass\n")
    unit = find_unit(list_units(source, PYTHON), "Cart")
    new = (
        "class Cart:\n    def add(self, count, item):\n        pass\n\n    def new(self, x):\n        pass\n"
    )
    made = with_new_parameters_last(source, PYTHON, unit, new, "count")
    assert "def add(self, item, count=None):" in made
    assert "def new(self, x):" in made


def test_a_method_keeps_its_indentation() -> None:
    """A unit that stands inside a class is read and written where it stands."""
    source = source_from_bytes(Path("shop.py"), b"class Cart:\n    def add(self, item):\n        pass\n")
    unit = find_unit(list_units(source, PYTHON), "Cart.add")
    new = "    @cached\n    def add(self, count, item):\n        return item\n"
    made = with_new_parameters_last(source, PYTHON, unit, new, "count")
    assert made == "    @cached\n    def add(self, item, count=None):\n        return item\n"


def test_a_function_that_calls_itself_in_the_new_order_stays() -> None:
    """What the answer itself gives in order would not fit any more."""
    source = source_from_bytes(Path("shop.py"), b"class Cart:\n    def add(self, item):\n        pass\n")
    unit = find_unit(list_units(source, PYTHON), "Cart.add")
    new = "    def add(self, count, item):\n        self.add(count - 1, item)\n"
    assert with_new_parameters_last(source, PYTHON, unit, new, "count") == new


def test_callers_of_a_class_are_callers_of_its_constructor() -> None:
    """A new parameter of `__init__` stays without a default where the class is called in the file."""
    code = b"class Cart:\n    def __init__(self, item):\n        pass\n\n\ncart = Cart(1)\n"
    source = source_from_bytes(Path("shop.py"), code)
    unit = find_unit(list_units(source, PYTHON), "Cart.__init__")
    new = "    def __init__(self, item, count):\n        pass\n"
    assert with_new_parameters_last(source, PYTHON, unit, new, "count") == new
