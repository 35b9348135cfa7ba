"""Modules say what they do not own, and who does: those others exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.docs.references import defined_names

SOURCE = REPOSITORY / "src" / "vivace"
MODULES = sorted(SOURCE.rglob("*.py"))
OTHERS = re.compile(r"\(`([a-z_]+(?:\.[a-z_]+)*)`\)|\bsee `([a-z_]+(?:\.[a-z_]+)*)`")


@cache
def known_names() -> set[str]:
    modules = {part for file in MODULES for part in file.relative_to(SOURCE).with_suffix("").parts}
    return modules | defined_names()


def dead_names(docstring: str) -> list[str]:
    """Return names in parentheses, or behind "see", that neither a module nor anything in one has."""
    found = [one or other for one, other in OTHERS.findall(docstring)]
    return [name for name in found if not set(name.split(".")) <= known_names()]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.relative_to(SOURCE).as_posix())
def test_a_module_refers_to_what_is_there(module: Path) -> None:
    """A name in its docstring survives no move of files unnoticed."""
    assert dead_names(ast.get_docstring(ast.parse(module.read_text("utf-8"))) or "") == []


def test_a_module_that_moved_away_is_noticed() -> None:
    """Of three references the one that leads nowhere is told."""
    docstring = "Does not own frames (`engine.wire`), who runs (`gone_long_ago`); see `scheduler`."
    assert dead_names(docstring) == ["gone_long_ago"]
