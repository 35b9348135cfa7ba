"""The reference pages are generated from the code, and a stale one is noticed."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests import REPOSITORY


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "docs" / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_pages_say_what_the_code_says() -> None:
    """Nothing in docs/reference differs from what docs/generate.py would write."""
    done = generate(REPOSITORY, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_page_is_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    """`--check` changes nothing and fails; without it the page is mended, and the prose around stays."""
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(REPOSITORY / "src")
    page = tmp_path / "docs" / "reference" / "settings.md"
    whole = page.read_text()
    page.write_text(whole.replace("`keep_days`", "`kept_days`"))
    told = generate(tmp_path, "--check")
    assert told.returncode == 1
    assert "docs/reference/settings.md is stale" in told.stdout
    assert "docs/generate.py" in told.stdout.splitlines()[-1]
    assert "`kept_days`" in page.read_text()
    assert generate(tmp_path).returncode == 0
    assert page.read_text() == whole
