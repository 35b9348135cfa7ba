"""The guide to debugging shows a script that works."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "debugging.md"


def test_an_engine_runs_alone_as_the_guide_shows(shallow: Path) -> None:
    """Its frames are printed, from `Ready` to `Finished`, and it ends with its socket."""
    (script,) = re.findall(r"^```python\n(import socket.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    environment = os.environ | {"VIVACE_MODEL": str(shallow), "VIVACE_TUNE": "never"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "← Ready(" in done.stdout
    assert "← Finished(turn='t', reason='length'" in done.stdout
