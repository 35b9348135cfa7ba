"""The extension in a real VS Code with the default model: one edit of the example, one completion."""

from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.e2e.terminal import Home
from tests.editors import window as windows
from vivace.config import load_settings
from vivace.models.store import is_present

pytestmark = pytest.mark.thorough
SLOW_S = 300.0  # a model that computes, on a machine that does other things too


def test_the_default_model_edits_and_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is rewritten in the editor and stays Python; then ghost text comes, and Tab takes it."""
    settings = load_settings()
    if not is_present(settings, settings.model):
        pytest.skip(f"{settings.model} is not on this machine (vivace models pull {settings.model})")
    monkeypatch.setattr(windows, "DEADLINE_S", SLOW_S)
    extra = {"VIVACE_CACHE_DIR": str(settings.cache_dir), "VIVACE_THREADS": "0", "VIVACE_TUNE": "never"}
    home = Home(tmp_path, extra=extra)
    example = (REPOSITORY / "examples" / "todo.py").read_text().partition("\n\n\nclass TodoList")[0]
    try:
        with windows.opened(home) as window:
            window.wait(lambda: "warm" in window.status, "the model is warm")
            file = window.open("todo.py", f"{example}\n")
            window.go_to(13)
            window.edit("give every task a priority from 1 to 3, default 2")
            window.wait(lambda: window.lenses, "the edit is whole")
            window.command("Vivace: Keep All Changes")
            window.wait(lambda: not window.lenses, "it is kept")
            window.save()
            assert "priority: int = 2" in file.read_text()
            compile(file.read_text(), "todo.py", "exec")
            window.press("Control+End")
            window.type("\n\ndef first_open(tasks: list[Task]) -> Task:\n")
            window.wait(lambda: window.ghost, "ghost text")
            ghost = window.ghost
            window.press("Tab")
            window.wait(lambda: ghost.strip()[:10] in window.text and not window.ghost, "it is taken")
            assert "tok/s" in window.status
    finally:
        home.stop()
