"""The workflow of the public forge: what can be checked of it without running it there."""

import subprocess
import sys

import yaml  # type: ignore[import-untyped,unused-ignore]

from tests import REPOSITORY

WORKFLOWS = REPOSITORY / ".github" / "workflows"


def test_workflows_have_the_forges_shape() -> None:
    """The schema that GitHub's own editor uses."""
    files = [str(file) for file in sorted(WORKFLOWS.glob("*.yml"))]
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *files,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert files
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_run_the_same_check_as_everybody() -> None:
    """On Linux, x86-64 and ARM, and on macOS; with no check of their own."""
    job = yaml.safe_load((WORKFLOWS / "check.yml").read_text())["jobs"]["check"]
    assert job["steps"][-1] == {"run": ".ci/run"}
    systems = {each["system"] for each in job["strategy"]["matrix"]["include"]}
    assert {"-arm" in name for name in systems if name.startswith("ubuntu")} == {True, False}
    assert any(name.startswith("macos") for name in systems)
