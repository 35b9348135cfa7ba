"""`vivace doctor --tune` as a user runs it, with a real model."""

import json
from pathlib import Path

import pytest

from tests.e2e.terminal import Home, Terminal


def tuned_files(home: Home) -> list[str]:
    folder = home.folder / "cache" / "tuned"
    return [file.name for file in folder.iterdir() if not file.name.startswith(".")]


def test_doctor_tunes_and_then_knows(home: Home, shallow: Path) -> None:
    """--tune --json gives the measurement on stdout, progress on stderr; doctor shows it from then on."""
    tune_and_ask(home, shallow)


@pytest.mark.thorough
def test_a_tuned_model_makes_sense(home: Home, smol: Path) -> None:
    """Whatever weights the tuning chose, the whole model knows what it knew."""
    assert "Paris" in tune_and_ask(home, smol)


def tune_and_ask(home: Home, model: Path) -> str:
    """Tune the model, look at what is told of it, and return what it answers."""
    home.model, home.extra["VIVACE_CONTEXT_TOKENS"] = str(model), "512"  # however long it would talk
    done = home.run("doctor", "--tune", "--json")
    assert done.code == 0, done.err
    profile = json.loads(done.out)
    assert profile["state"] == "measured"
    assert sorted(map(int, profile["step_costs"])) == [1, 2, 4, 8, 16, 32, 64]
    assert "Measuring, round 1" in done.err
    assert profile["why"] in home.run("doctor", "--quick").out
    answered = home.run("ask", "What is the capital of France? Answer in one sentence.")
    assert answered.code == 0, answered.err
    return answered.out


def test_ctrl_c_on_a_terminal_leaves_nothing(home: Home, shallow: Path) -> None:
    """Ctrl-C in the middle of a tuning: exit code 130, and neither a profile nor half a file."""
    home.model = str(shallow)
    terminal = Terminal(home, "doctor", "--tune")
    terminal.wait_for("Loading")
    terminal.type("\x03")
    assert terminal.end() == 130, terminal.shown
    assert "Interrupted." in terminal.shown
    assert tuned_files(home) == []
