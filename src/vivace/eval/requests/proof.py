"""The set against itself: a reference should pass, and the tree as it is should not.

Owns laying a patch over a tree, and what is wrong with a request. Does not own the verdicts (`judging`).
"""

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path

from vivace.errors import FileProblem
from vivace.eval.edits.bundle import bundle
from vivace.eval.edits.run import together
from vivace.eval.requests.places import changed_lines
from vivace.eval.requests.plan import RequestsPlan
from vivace.eval.requests.requests import Request
from vivace.eval.requests.trees import unpacked
from vivace.programs import find_program


async def prove(plan: RequestsPlan) -> dict[str, list[str]]:
    """Return the requests whose reference does not pass, and those that an unchanged tree does not fail."""
    found: dict[str, list[str]] = {"references_that_fail": [], "unchanged_that_pass": []}
    waiting = iter(plan.tasks)

    async def work() -> None:
        for request in waiting:
            before, after = await asyncio.to_thread(patched, request)
            if (await plan.judge(request, after))[0] != "passed":
                found["references_that_fail"].append(request.name)
            if (await plan.judge(request, before))[0] != "failed":
                found["unchanged_that_pass"].append(request.name)

    await together(work() for _ in range(os.cpu_count() or 1))
    return {name: sorted(names) for name, names in found.items()}


def patched(request: Request) -> tuple[str, str]:
    """Return the files of the reference before and after it, as answers are kept."""
    with tempfile.TemporaryDirectory(prefix="vivace-eval-") as made:
        folder = unpacked(request.archive, Path(made) / "tree")
        names = [name for name in changed_lines(request.patch) if (folder / name).is_file()]
        before = {name: (folder / name).read_bytes().decode("utf-8") for name in names}
        program = find_program("patch")
        if program is None:
            raise FileProblem(
                "The program `patch` is not on this machine.", "Install it: apt-get install patch."
            )
        apply = [program, "--strip=1", "--silent", "--no-backup-if-mismatch"]
        done = subprocess.run(
            apply, cwd=folder, input=request.patch.encode(), capture_output=True, check=False
        )
        if done.returncode:
            raise FileProblem(f"The reference of {request.name} does not apply: {done.stdout.decode()}", "")
        named = [row[6:] for row in request.patch.splitlines() if row.startswith("+++ b/")]
        after = {name: (folder / name).read_bytes().decode("utf-8") for name in named}
    return bundle(before), bundle(after)
