"""Runs inside the sandbox alone: lays an edit over a tree, and runs the programs or tests that judge it.

Owns nothing of ours: it imports the standard library only, and prints what it found behind a secret word.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

# What pytest is told to write down: how each test ended.
PLUGIN = """
import json, os
found = {}
def pytest_runtest_logreport(report):
    name = report.nodeid
    if report.when == "call":
        if hasattr(report, "wasxfail"):
            found[name] = "xfail"
        elif found.get(name) != "failed":
            found[name] = report.outcome
    elif report.failed:
        found[name] = "failed"
    elif report.skipped and report.when == "setup":
        found[name] = "skipped"
def pytest_sessionfinish(session, exitstatus):
    with open(os.environ["TASK_REPORT"], "w") as file:
        json.dump(found, file)
"""


def main(proof: str) -> None:
    given = json.loads(Path("given.json").read_text("utf-8"))
    root = unpacked(given["files"])
    found = run_tests(root, given) if "command" in given else run_programs(root, given, proof)
    print(f"\n{proof}{json.dumps(found)}", flush=True)


def unpacked(files: dict[str, str | None]) -> Path:
    """Return the tree with the edit in it."""
    tree = Path("tree").absolute()
    with tarfile.open("tree.tar.gz") as archive:
        archive.extractall(tree, filter="data")
    inside = list(tree.iterdir())
    root = inside[0] if len(inside) == 1 and inside[0].is_dir() else tree
    for name, text in files.items():
        path = root / name
        if text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "replace"))
    return root


def run_programs(root: Path, given: dict[str, Any], proof: str) -> dict[str, Any]:
    """Run each program of asserts. Passing means that it came to its end."""
    found = {}
    for name, program in given["programs"].items():
        cwd = Path(f"run-{name}").absolute()
        cwd.mkdir()
        imported_from = str(root / given["imported_from"])
        whole = f"import sys\nsys.path.insert(0, {imported_from!r})\n{program}\nprint({proof!r})\n"
        command = [*given["python"], "-s", "-B", "-c", whole]
        try:
            done = subprocess.run(
                command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=given["seconds"]
            )
        except subprocess.TimeoutExpired:
            found[name] = {"is_right": False, "said": "It did not end."}
            continue
        is_right = done.returncode == 0 and done.stdout.rstrip().endswith(proof)
        found[name] = {"is_right": is_right, "said": "" if is_right else done.stderr[-2000:]}
    return found


def run_tests(root: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Run the project's own tests. Return how each one ended."""
    beside = Path("beside").absolute()
    home = beside / "home"
    home.mkdir(parents=True)
    (beside / "task_report.py").write_text(PLUGIN)
    report = beside / "report.json"
    environment = {
        **os.environ,
        "PATH": f"{given['environment']}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TERM": "xterm",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(beside),
        "PYTEST_ADDOPTS": "-p task_report",
        "TASK_REPORT": str(report),
    }
    subprocess.run(["/bin/sh", "-c", given["command"]], cwd=root, env=environment, check=False)
    return dict(json.loads(report.read_text())) if report.exists() else {}


if __name__ == "__main__":
    main(sys.argv[1])
