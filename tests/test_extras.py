"""`vivace extras`: what is listed, and what would be installed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from vivace.cli.installation.extras import extras
from vivace.engine.devices.adding import Addition
from vivace.engine.devices.backend_files import BuiltBackend
from vivace.errors import StartError, UsageError
from vivace.extras import CLONE, EXTRAS, Extra, find_extra, install, install_command


def say(*arguments: str) -> str:
    return CliRunner().invoke(extras, arguments, catch_exceptions=False, standalone_mode=False).output


def test_each_extra_has_a_line() -> None:
    """With what it is for, and whether it is here or how to add it."""
    lines = say().splitlines()
    assert [line.split()[0] for line in lines] == ["cuda", "vulkan", "mcp", "train", "checks", "otel"]
    assert all(line.endswith((": here", "`")) for line in lines)


def test_an_unknown_extra_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="no extra 'gpu'") as refused:
        say("add", "gpu")
    assert refused.value.hint == "There are: cuda, vulkan, mcp, train, checks, otel."


def test_what_would_be_done_for_a_gpu_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --explain nothing else happens; without it, what is built already is not built again."""
    addition = Addition("build", "llama.cpp would use it.", ("8.6",))
    monkeypatch.setattr("vivace.extras.plan_gpu", lambda *_, **__: addition)
    built = BuiltBackend("cuda", "/cache/libggml-cuda.so", (12, 8), ("8.6", "8.9"))
    monkeypatch.setattr("vivace.engine.devices.backend_files.find_built", lambda _: {"cuda": built})
    assert say("add", "cuda", "--explain") == "llama.cpp would use it.\n"
    assert say("add", "cuda").splitlines()[1] == "It is here already: /cache/libggml-cuda.so"


def test_what_is_here_is_not_installed_again() -> None:
    here = Extra("here", "nothing", ("json", "email.message"))
    assert here.missing == ()
    assert replace(here, modules=("json", "no_such.module")).missing == ("no_such.module",)


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra.modules], ids=lambda extra: extra.name)
def test_a_clone_installs_what_pyproject_says(extra: Extra) -> None:
    """With the versions that were tested."""
    command = install_command(extra)
    assert command[1:5] == ["-P", "-m", "pip", "install"]
    assert command[command.index("-c") + 1] == str(CLONE / "constraints.txt")
    assert all(any(module.split(".")[0] in word for word in command) for module in extra.modules)


def test_without_a_clone_or_a_package_nothing_is_guessed(tmp_path: Path) -> None:
    """A package of our name that is not ours must never be installed."""
    with pytest.raises(StartError, match="not known how"):
        install_command(find_extra("cuda"), tmp_path)


def test_an_environment_without_pip_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """uv's environments have none: the extra is named when Vivace is installed."""
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(StartError, match="no pip") as refused:
        install(find_extra("mcp"))
    assert "'.[mcp]'" in refused.value.hint
