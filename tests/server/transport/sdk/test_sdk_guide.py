"""The guide's Python runs as it stands, block after block, with the two variables that it names."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests import REPOSITORY
from vivace.client import warm
from vivace.config import Settings

GUIDE = REPOSITORY / "docs" / "guides" / "openai-sdk.md"


def test_the_guide_runs(start: Callable[..., Settings], smol: Path, tmp_path: Path) -> None:
    """All blocks as one program on a real model: it ends well, and says something in every part."""
    # So small a model may repeat itself to the end of its context: a short one, and either ending is good.
    address = warm.ensure_server(start(model=str(smol), context_tokens=336))
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 5
    program = tmp_path / "guide.py"
    program.write_text("\nprint('\\n=== part')\n".join(blocks), "utf-8")
    done = subprocess.run(
        [sys.executable, program],
        env={
            "OPENAI_BASE_URL": address.url,
            "OPENAI_API_KEY": address.token,
            "PYTHONIOENCODING": "utf-8",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("=== part\n")
    assert len(parts) == len(blocks)
    assert all(part.strip() for part in parts), done.stdout
    assert "Person" not in parts[0]
    assert re.match(r"name='.*' age=\d+", parts[1])
    assert re.search(r"^response\.(completed|incomplete)$", parts[4], re.MULTILINE)
