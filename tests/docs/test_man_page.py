"""The manual page: every command is in it, and roff reads it without a complaint."""

import re
import shutil
import subprocess
import tomllib

import click
import pytest

from tests import REPOSITORY
from vivace.cli.main import app

PAGE = REPOSITORY / "docs" / "vivace.1"
REQUESTS = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I"}


def test_every_command_is_in_it() -> None:
    """Each command and each of its options has an entry."""
    text = PAGE.read_text("utf-8").replace("\\-", "-")
    root = click.Context(app)
    for name in app.list_commands(root):
        command = app.get_command(root, name)
        assert command is not None
        assert f".SS vivace {name}\n" in text
        for option in [each for each in command.params if each.param_type_name == "option"]:
            assert option.opts[0] in text


def test_no_text_is_a_request() -> None:
    """A line that begins with a dot or a quote is one of the few requests that the page uses."""
    lines = PAGE.read_text("utf-8").splitlines()
    begun = {line.split(" ")[0] for line in lines if line.startswith((".", "'"))}
    assert begun <= REQUESTS
    assert all(lines), "an empty line is a request, too"


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not on this machine (Debian: groff)")
def test_roff_reads_it() -> None:
    """No warnings, and what a reader sees has sections in their order."""
    line = ["groff", "-man", "-ww", "-Tutf8", "-Kutf8", str(PAGE)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    found = re.findall(r"^[A-Z][A-Z ]+$", shown, re.MULTILINE)
    assert found == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "FILES",
        "ENVIRONMENT",
        "EXIT STATUS",
        "SEE ALSO",
    ]


def test_the_wheel_brings_it() -> None:
    """Where `man` looks for it below an environment."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {"docs/vivace.1": "share/man/man1/vivace.1"}
