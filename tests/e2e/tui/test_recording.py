"""The script that records README's picture: a short real run of the program with a scripted model."""

import hashlib
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import count, repeat
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.server.serving import script
from vivace.client import warm
from vivace.config import Settings

sys.path.insert(0, str(REPOSITORY / "docs" / "recording"))
import record

UNIT = re.search(r"class TodoList:.*?(?=\n\n\ndef )", record.EXAMPLE.read_text(), re.DOTALL)


def unit_with(docstrings: Iterator[str]) -> str:
    """Return the model's answer: a docstring in every method."""
    assert UNIT
    methods = re.sub(r"    def .*:\n", lambda found: f'{found[0]}        """{next(docstrings)}"""\n', UNIT[0])
    return f"```python\n{methods}\n```"


def hashes() -> Iterator[str]:
    """Yield texts that no draft guesses."""
    for number in count():
        yield f"Long {hashlib.sha256(bytes([number])).hexdigest()}"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_run_becomes_a_picture(settings: Settings, tmp_path: Path) -> None:
    """Typed, steered, taken and undone: the picture has all of it, is small, and has no script or link."""
    long, short = unit_with(hashes()), unit_with(repeat("Short."))
    model = script(tmp_path, replies={"short line": short, "": long}, step_ms=20, context_tokens=20000)
    settings = settings.having(model=model, tune="never")
    try:
        recording = record.record(settings, tmp_path, record.Scene())
    finally:
        warm.stop_server(settings)
    record.write(recording, tmp_path / "out", "scripted")
    svg = (tmp_path / "out" / "edit.svg").read_text()
    assert len(svg.encode()) < record.MAX_BYTES
    drawn = " ".join(text for text in ET.fromstring(svg).itertext())
    for words in ("Long ", "↪", "Short.", "written", "Took back the change", "a real run"):
        assert words in drawn
    assert "line-through" in svg
    assert not re.search(r"<script|<image|@import|url\(|href=\"(?!#)", svg)
    text = (tmp_path / "out" / "edit.txt").read_text()
    assert text.index("The diff grows") < text.index("↪") < text.index("== Taken") < text.index("== Undone")
