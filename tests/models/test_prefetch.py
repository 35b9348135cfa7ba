"""Which model a command is about to ask for."""

from pathlib import Path

import pytest

from vivace.config import DEFAULT_MODEL, Settings
from vivace.models.prefetch import Percent, model_of


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], DEFAULT_MODEL),
        (["edit", "a.py", "shorter"], DEFAULT_MODEL),
        (["edit", "a.py", "shorter", "--model", "smollm2-135m"], "smollm2-135m"),
        (["ask", "--model=smollm2-135m", "why?"], "smollm2-135m"),
        (["ask", "--model", "/my/file.gguf", "why?"], ""),
        (["ask", "--model"], ""),
        (["ask", "--", "--model=smollm2-135m"], DEFAULT_MODEL),
    ],
)
def test_the_model_is_read_from_the_command(tmp_path: Path, words: list[str], name: str) -> None:
    """The option wins, the settings come next, and a file of the user's own is not fetched."""
    settings = Settings(cache_dir=tmp_path, state_dir=tmp_path)
    assert model_of(settings, words) == name


def test_percents_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each percent that is new, and never 100 before the end."""
    progress = Percent()
    progress.begin("m from the hub", 1000)
    for _ in range(200):
        progress.advance(5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m from the hub"
    assert lines[1:] == [*(f"{n}%" for n in range(100)), "99%"]
