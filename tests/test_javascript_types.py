"""The types of the JavaScript, of the browser app and of the extension, as TypeScript reads them in JSDoc."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.e2e import npm

CHECKER = ("typescript@5.9.3", "@types/node@24.10.1", "@types/vscode@1.101.0")


@pytest.mark.parametrize("place", ["web", "editors/vscode"])
def test_the_types_hold(place: str, tmp_path: Path) -> None:
    """The compiler finds no fault with the options of the folder's own tsconfig.json."""
    wanted = json.loads((REPOSITORY / "web" / "package.json").read_text())["dependencies"]
    installed = npm.packages("types", *CHECKER, *(f"{name}@{version}" for name, version in wanted.items()))
    shutil.copytree(REPOSITORY / place / "src", tmp_path / "src")
    shutil.copy(REPOSITORY / place / "tsconfig.json", tmp_path)
    (tmp_path / "node_modules").symlink_to(installed)
    line = [str(installed / ".bin" / "tsc"), "--project", str(tmp_path)]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
