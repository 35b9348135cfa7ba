"""README: short, and every command in it is one that the program has.

Owns what README promises about the command line. Links and names are checked in `test_references.py`.
"""

import re
from collections.abc import Iterator

import click
import pytest

from tests import REPOSITORY
from vivace.cli.main import app

COMMAND = re.compile(r"(?:^\$? ?\./vivace|`vivace)(?= |`|\n)([^`\n]*)", re.MULTILINE)


def commands_of(page: str) -> list[str]:
    """Return each command line of Vivace on the page, without the program's name."""
    return [found.strip() for found in COMMAND.findall(page)]


def problems_of(line: str) -> Iterator[str]:
    """Say which subcommand or option the program does not have."""
    command: click.Command = app
    for word in line.split():
        context = click.Context(command)
        if word.startswith("-"):
            known = {option for each in command.get_params(context) for option in each.opts}
            if word not in known:
                yield f"{line}: no option {word}"
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                yield f"{line}: no command {word}"
                return
            command = found


def test_the_readme_is_short() -> None:
    """A stranger reads it in a few minutes: at most 130 lines."""
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 130


def test_the_program_has_every_command_of_the_readme() -> None:
    """Subcommands and options exist as README writes them."""
    lines = commands_of((REPOSITORY / "README.md").read_text("utf-8"))
    assert len(lines) > 8, "the commands are found"
    assert [problem for line in lines for problem in problems_of(line)] == []


@pytest.mark.parametrize(
    "page", ["`vivace nothing`", "`vivace edit --nothing`", "```\n./vivace edits app.py\n```"]
)
def test_a_wrong_command_is_found(page: str) -> None:
    """A subcommand or an option that the program does not have is named."""
    assert [problem for line in commands_of(page) for problem in problems_of(line)]
