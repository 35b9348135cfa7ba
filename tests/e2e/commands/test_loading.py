"""A model that takes long to load: commands say how far it is."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import NEW, SHOUTED, TASK
from tests.e2e.terminal import Home, Terminal

SIZE = 20_000_000_000


@pytest.fixture
def weights(home: Home, tmp_path: Path) -> Iterator[Path]:
    """The model's file: as much of it as there is counts as read."""
    file = tmp_path / "weights"
    file.touch()
    os.truncate(file, 12_000_000_000)  # a hole: nothing is on the disk
    (home.work / "task.py").write_text(TASK)
    home.script({"Task: shout": SHOUTED}, load_file=str(file), load_bytes=SIZE)
    yield file
    os.truncate(file, SIZE)


def test_an_edit_and_the_status_say_how_far_the_model_is(home: Home, weights: Path) -> None:
    """On a terminal in place of what is waited for; the edit is done when the model is loaded."""
    terminal = Terminal(home, "edit", "task.py:show", "shout", "--yes")
    terminal.wait_for("loading script.json: 12 of 20 GB")
    assert "(loading, 12 of 20 GB)" in home.run("status").out
    assert home.status()["engine"]["loading"]["done"] == 12_000_000_000
    os.truncate(weights, 13_000_000_000)
    terminal.wait_for("loading script.json: 13 of 20 GB")
    os.truncate(weights, SIZE)
    assert terminal.end() == 0
    assert (home.work / "task.py").read_text() == NEW
    assert "loading" not in home.run("status").out


def test_a_program_reads_it_as_events(home: Home, weights: Path) -> None:
    """`--json`: an event for each step of the load, then those of the edit."""
    with home.start("edit", "task.py:show", "shout", "--json", "--yes") as process:
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == "progress":
                os.truncate(weights, SIZE)
    told = events[1]
    assert (told["type"], told["stage"]) == ("progress", "loading")
    assert (told["done"], told["total"]) == (12_000_000_000, SIZE)
    assert events[-1]["type"] == "written"
