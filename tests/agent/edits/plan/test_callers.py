"""Calls that do not fit a function any more."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.plan.callers import callers_left_behind

PYTHON = """class Mail:
    def __init__(self, text):
        self.text = text

    def send(self, to):
        return to


def send(text, to="all", *, fast=False):
    return Mail(text).send(to)


def greet():
    return send("hello")


def shout():
    return send("HELLO", to="ann", fast=True)


def forward(*rest):
    return send(*rest)


send("now", "bob")
"""
SCRIPT = """function load(path, mode) {
  return path;
}

const save = (path) => {
  return load(path, 1);
};

function both() {
  return load("a");
}

console.log(load("x", 2));
"""
GO = """package bank

type Bank struct{ n int }

func (b *Bank) Add(x, y int) int { return x + y }

func Use(b *Bank) int {
	return b.Add(1, 2)
}

func Other(b *Bank) int {
	return b.n
}
"""


def left_behind(text: str, old: str, new: str, name: str, file: str) -> list[str]:
    path = Path(file)
    language = language_for(path)
    assert language is not None
    assert text.count(old) == 1
    before = source_from_bytes(path, text.encode())
    after = source_from_bytes(path, text.replace(old, new).encode())
    unit = next(unit for unit in list_units(before, language) if unit.qualified_name == name)
    found = callers_left_behind(before, after, language, unit, list_units(after, language))
    return [unit.qualified_name for unit in found]


@pytest.mark.parametrize(
    ("old", "new", "name", "callers"),
    [
        ('text, to="all", *', "text, to, cc, *", "send", ["greet", "shout", "line 25"]),
        ('text, to="all", *', 'text, to="all", cc=None, *', "send", []),
        ('text, to="all", *', 'text, whom="all", *', "send", ["shout"]),
        ('text, to="all", *, fast=False', 'text, to="all"', "send", ["shout"]),
        ('text, to="all", *', "text, *", "send", ["shout", "line 25"]),
        ("return Mail(text)", "return  Mail(text)", "send", []),
        ("def send(self, to)", "def send(self, to, cc)", "Mail.send", ["send"]),
        ("(self, text)", "(self, text, sender)", "Mail.__init__", ["send"]),
    ],
)
def test_python_callers(old: str, new: str, name: str, callers: list[str]) -> None:
    """A call that lacks an argument, has one too many or a wrong keyword is found; `*rest` may fit."""
    assert left_behind(PYTHON, old, new, name, "mail.py") == callers


@pytest.mark.parametrize(
    ("text", "old", "new", "name", "file", "callers"),
    [
        (SCRIPT, "load(path, mode)", "load(path)", "load", "io.js", ["save", "line 13"]),
        (SCRIPT, "load(path, mode)", "load(path, mode, x)", "load", "io.js", ["save", "line 13"]),
        (SCRIPT, "load(path, mode)", "load(path, mode, x = 1)", "load", "io.ts", []),
        (GO, "(x, y int)", "(x, y, z int)", "Bank.Add", "bank.go", ["Use"]),
    ],
)
def test_callers_of_other_languages(
    text: str, old: str, new: str, name: str, file: str, callers: list[str]
) -> None:
    """Arguments are counted. A call that did not fit before is left alone."""
    assert left_behind(text, old, new, name, file) == callers
