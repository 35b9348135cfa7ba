"""What tuning makes is listed with its model and goes with it."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from vivace.cli.installation.models import models
from vivace.config import Settings
from vivace.errors import ModelUnavailable
from vivace.models import store
from vivace.models.catalog import QWEN, SMOLLM2

PRINT = "0123456789abcdef"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Settings(cache_dir=tmp_path, state_dir=tmp_path / "state")


def put(settings: Settings, name: str, size_bytes: int = 1000) -> Path:
    path = store.tuned_dir(settings) / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


def say(*arguments: str) -> str:
    return CliRunner().invoke(models, arguments, catch_exceptions=False, standalone_mode=False).output


def stem(file: str) -> str:
    return Path(file).stem


def test_made_weights_are_listed_below_their_model(settings: Settings) -> None:
    """A made file is said with format, size and place, also without its model; profiles are not."""
    made = put(settings, f"{stem(QWEN.file)}.{PRINT}.Q8_0.gguf", 1_900_000_000)
    put(settings, f"{stem(QWEN.file)}.{PRINT}.aaaabbbbcccc.0.3.36.json")
    shown = " ".join(say("list").split("\nRecommended")[0].split())
    assert f"{QWEN.name} 1.1 GB" in shown
    assert f"not here Q8_0 made here, 1.9 GB: {made}" in shown
    assert shown.count("made here") == 1


def test_removing_a_model_removes_what_was_made_from_it(settings: Settings) -> None:
    """Weights, profiles and beginnings go with the model, and only its own."""
    mine = [
        put(settings, f"{stem(SMOLLM2.file)}.{PRINT}.{end}") for end in ("Q8_0.gguf", "m.1.json", "x.part")
    ]
    others = [
        put(settings, f"{stem(QWEN.file)}.{PRINT}.Q8_0.gguf"),
        put(settings, f"{stem(SMOLLM2.file)}.b.gguf"),
    ]
    assert store.remove(settings, SMOLLM2) == 3000
    assert not any(path.exists() for path in mine)
    assert all(path.exists() for path in others)


def test_a_model_that_is_being_tuned_is_not_removed(settings: Settings) -> None:
    """Not from under a tuning: it says so, and nothing is gone."""
    put(settings, f"{stem(SMOLLM2.file)}.{PRINT}.Q8_0.gguf")
    lock = store.open_tuning_lock(settings, stem(SMOLLM2.file))
    assert store.try_lock(lock)
    with pytest.raises(ModelUnavailable, match="is being tuned now"):
        store.remove(settings, SMOLLM2)
    assert len(store.tuned_files(settings, SMOLLM2)) == 1
    os.close(lock)
