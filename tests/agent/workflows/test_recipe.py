"""The format of workflows: strict, and the shipped ones keep to it."""

import shlex
import string
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.workflows.filling import filled, filled_command, names_in
from vivace.agent.workflows.finding import _shipped
from vivace.agent.workflows.recipe import parse_workflow
from vivace.agent.workflows.running import with_defaults
from vivace.errors import UsageError


def recipe(steps: str, inputs: str = "") -> str:
    return f'description = "x"\n{inputs}\n{steps}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("steps = 3", "Expected"),
        ('description = "x"\nsteps = []', "1 to 100 steps"),
        (recipe('[[steps]]\nrun = "a"\nask = "b"'), "exactly one of"),
        (recipe('[[steps]]\nname = "a"'), "exactly one of"),
        (recipe('[[steps]]\nrun = "a {b}"'), "uses {b}"),
        (recipe('[[steps]]\nrun = "a"\nwhat = 1'), "unknown field"),
        (recipe('[[steps]]\nedit = "a"'), "edit needs files"),
        (recipe('[[steps]]\nedit = "a"\nfiles = ["x"]\nto = "y"'), "to belongs to"),
        (recipe('[[steps]]\nrun = "a"\ntries = 9'), "tries must be"),
        (recipe('[[steps]]\nrun = "a"\ncheck.says = "("'), "no regular expression"),
        (recipe('[[steps]]\nrun = "a"\nas = "B"'), "as must be a name"),
        (recipe('[[steps]]\nfor_each = "a"'), "for_each, which needs them"),
        (recipe('[[steps]]\nfor_each = "a"\n[[steps.steps]]\nrun = "{other}"'), "step 1.1 uses {other}"),
        (recipe('[[steps]]\n[[steps.parallel]]\nedit = "a"\nfiles = ["x"]'), "can be parallel"),
        (recipe('[[steps]]\nrun = "a"', "[inputs.A]"), "cannot be the name"),
        (recipe('[[steps]]\nrun = "a"', '[inputs.a]\ndefault = "{b}"'), "inputs.a uses {b}"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    """Each fault is found before anything runs, and named."""
    with pytest.raises(UsageError) as refused:
        parse_workflow("x", text)
    assert problem in refused.value.message


def test_later_steps_know_earlier_outputs() -> None:
    """A name is known behind the step that gives it, and an item inside of its loop."""
    text = (
        '[[steps]]\nrun = "ls"\nas = "a"\n[[steps]]\nfor_each = "{a}"\n[[steps.steps]]\nrun = "echo {item}"'
    )
    assert [step.kind for step in parse_workflow("x", recipe(text)).steps] == ["run", "for_each"]


@pytest.mark.parametrize("found", _shipped(), ids=lambda found: found.name)
def test_the_shipped_ones_are_whole(found: object) -> None:
    """Each parses, has a description, and says what each input is."""
    workflow = found.parsed()  # type: ignore[attr-defined]
    assert workflow.description
    assert all(each.description for each in workflow.inputs.values())


def test_inputs_have_defaults_or_must_be_given() -> None:
    """A default may be made of inputs before it; what is missing or unknown is refused."""
    inputs = '[inputs.file]\n[inputs.test]\ndefault = "tests/test_{file:stem}.py"'
    workflow = parse_workflow("x", recipe('[[steps]]\nrun = "a"', inputs))
    assert with_defaults("x", workflow, {"file": "src/a.py"})["test"] == "tests/test_a.py"
    for given_inputs in ({}, {"file": "a", "other": "b"}):
        with pytest.raises(UsageError):
            with_defaults("x", workflow, given_inputs)


def test_parts_of_a_path() -> None:
    """A path's stem, name, folder and module; doubled braces are braces."""
    values = {"file": "src/shop/cart.py"}
    assert filled("{file:stem} {file:name} {file:parent} {file:module}", values) == (
        "cart cart.py src/shop shop.cart"
    )
    assert filled("${{x:+y}} {file:stem}", values) == "${x:+y} cart"
    assert names_in("${{x}} {file:stem} { no }") == {"file"}


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_a_value_is_one_word_of_the_shell(value: str) -> None:
    """Whatever is in a value, a shell sees one word, and nothing of it is run."""
    assert shlex.split(filled_command("echo {a}", {"a": value})) == ["echo", value]


def test_a_real_shell_agrees() -> None:
    """Every printable character at once."""
    line = filled_command("printf %s {a}", {"a": string.printable})
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True)
    assert done.stdout.decode() == string.printable
