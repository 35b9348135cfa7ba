"""What a sandboxed command costs before and after it runs, by the kind of workspace.

    .venv/bin/python benchmarks/agent/sandbox_start.py [--against CHECKOUT] [--rounds 15] [--only nested]

Runs `date` in folders that it makes: a small one, one with 2,000 folders, one with 50,000, one with nested
repositories. "first" is the first command of a process, which reads every folder; "next" is each later one.
"begins" is from the call to the first instruction of the command, "ends" to its outcome. With `--against`,
another checkout of this repository is measured in the same rounds, in turn. Prints medians in milliseconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
FILES_A_FOLDER = 4
NESTED = 24  # repositories
KINDS = {"small": 10, "2,000 folders": 2_000, "50,000 folders": 50_000, "nested": 500}  # and their folders
COMMANDS = 4  # of each process: one first, three next
IN_CHILD = """import asyncio, json, sys, time
from pathlib import Path
from vivace.agent.sandbox.run import run_sandboxed
from vivace.agent.sandbox.workspace import Workspace

# Tasks name the folder for it; checkouts of before have none.
state = {"state": Path(sys.argv[3])} if "state" in Workspace.__dataclass_fields__ else {}

async def main():
    await asyncio.to_thread(int)  # a task has threads by the time of its first command
    took = []
    for _ in range(int(sys.argv[2])):
        called = time.time()
        workspace = Workspace(Path(sys.argv[1]), is_writable=True, **state)
        outcome = await run_sandboxed(["date", "+%s.%N"], workspace=workspace)
        assert outcome.is_success, outcome
        took.append([1000 * (float(outcome.output) - called), 1000 * (time.time() - called)])
    print(json.dumps(took))

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=KINDS, help="the one kind of workspace to measure, such as nested")
    arguments = parser.parse_args()
    checkouts = [HERE, *([arguments.against.resolve()] if arguments.against else [])]
    with tempfile.TemporaryDirectory() as folder:
        workspaces = made(Path(folder), [arguments.only] if arguments.only else list(KINDS))
        time.sleep(3)  # until no folder counts as changed just now
        for name, workspace in workspaces.items():
            took: dict[Path, list[list[list[float]]]] = {checkout: [] for checkout in checkouts}
            for turn in range(arguments.rounds):
                for checkout in checkouts if turn % 2 else checkouts[::-1]:
                    took[checkout].append(measured(checkout, workspace, Path(folder) / "state"))
            print(name)
            for checkout in checkouts:
                first = [each[0] for each in took[checkout]]
                later = [command for each in took[checkout] for command in each[1:]]
                print(f"  {checkout.name:20} first {medians(first)}   next {medians(later)}", flush=True)


def medians(took: list[list[float]]) -> str:
    begins, ends = (statistics.median(each[place] for each in took) for place in (0, 1))
    return f"begins {begins:6.0f}, ends {ends:6.0f}"


def made(folder: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """Make the workspaces. Return them by kind."""
    workspaces = {kind: folder / kind for kind in kinds}
    for kind, workspace in workspaces.items():
        workspace.mkdir()
        subprocess.run(["git", "init", "-q", str(workspace)], check=True)
        fill(workspace, KINDS[kind])
    for number in range(NESTED if "nested" in kinds else 0):
        nested = workspaces["nested"] / f"folder-{number % 10}" / f"nested-{number}"
        subprocess.run(["git", "init", "-q", str(nested)], check=True)
    return workspaces


def fill(top: Path, folders: int) -> None:
    """Make so many folders in each other, ten in one, with a few files each."""
    waiting = [str(top)]
    for number in range(folders):
        folder = os.path.join(waiting[number // 10], f"folder-{number % 10}")  # noqa: PTH118
        os.mkdir(folder)  # noqa: PTH102
        waiting.append(folder)
        for each in range(FILES_A_FOLDER):
            with open(f"{folder}/file-{each}.py", "x"):  # noqa: PTH123
                pass


def measured(checkout: Path, workspace: Path, state: Path) -> list[list[float]]:
    """Return the milliseconds until each command of one process begins and ends."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-c", IN_CHILD, str(workspace), str(COMMANDS), str(state)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    took: list[list[float]] = json.loads(done.stdout)
    return took


if __name__ == "__main__":
    main()
