"""Whether an edited tree does what was asked, and still does what it did: judged in the sandbox.

Owns what is run there and what its result means. The tree travels as the archive that it came from; the
edit's files are laid over it inside. Does not own the sandbox (`agent.sandbox`).
"""

import asyncio
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vivace.agent.sandbox.run import Limits, run_sandboxed
from vivace.child_python import python_command
from vivace.eval.edits.bundle import unbundle
from vivace.eval.edits.scoring import DETAIL_CHARS, Verdict
from vivace.eval.requests.requests import Request, Scripts, Tests

LIMITS = Limits(
    seconds=300.0,
    cpu_seconds=240.0,
    memory_bytes=3 << 30,
    processes=64,
    output_bytes=4 << 20,
    folder_bytes=512 << 20,
    file_bytes=64 << 20,
    open_files=512,
)
SCRIPT_S = 60.0
CHECK, KEEPS = "check", "keeps"
RUN = Path(__file__).with_name("judge_program.py").read_bytes()


async def judge_request(request: Request, code: str, environment: Path | None = None) -> tuple[Verdict, str]:
    """Judge what an answer wrote. `environment` has the packages of a project's own tests.

    "broke": something that worked does not work any more. "failed": what was asked for is not there.
    """
    edit = dict(unbundle(code))
    if isinstance(request.judged_by, Scripts):
        return await _by_scripts(request, request.judged_by, edit)
    assert environment, "tests need one"
    return await _by_tests(request, request.judged_by, edit, environment)


async def _by_scripts(request: Request, scripts: Scripts, edit: Mapping[str, str]) -> tuple[Verdict, str]:
    programs = {CHECK: scripts.check, KEEPS: scripts.keeps}
    given = {
        "programs": programs,
        "imported_from": scripts.imported_from,
        "seconds": SCRIPT_S,
        "python": python_command(),
    }
    found, said = await _run(request.archive, edit, given, ())
    if found is None:
        return "error", said
    if not found[KEEPS]["is_right"]:
        return "broke", found[KEEPS]["said"][-DETAIL_CHARS:]
    return ("passed", "") if found[CHECK]["is_right"] else ("failed", found[CHECK]["said"][-DETAIL_CHARS:])


async def _by_tests(
    request: Request, tests: Tests, edit: Mapping[str, str], environment: Path
) -> tuple[Verdict, str]:
    """Let the project's tests judge. A test that is not among the results has not passed."""
    files = {**edit, **tests.files}
    given = {"command": tests.command, "environment": str(environment)}
    found, said = await _run(request.archive, files, given, (environment,))
    if found is None:
        return "error", said
    broken = [name for name in tests.pass_to_pass if found.get(name) != "passed"]
    if broken:
        detail = f"{len(broken)} of {len(tests.pass_to_pass)} tests that passed fail: {', '.join(broken)}"
        return "broke", detail[:DETAIL_CHARS]
    missing = [name for name in tests.fail_to_pass if found.get(name) != "passed"]
    return ("failed", ", ".join(missing)[:DETAIL_CHARS]) if missing else ("passed", "")


async def _run(
    archive: Path, edit: Mapping[str, str | None], given: Mapping[str, Any], shown: tuple[Path, ...]
) -> tuple[dict[str, Any] | None, str]:
    """Run the program inside. Return what it found, or None and why there is nothing."""
    proof = secrets.token_hex(16)
    tree = await asyncio.to_thread(archive.read_bytes)
    outcome = await run_sandboxed(
        python_command("-s", "-B", "judge.py", proof),
        files={
            "judge.py": RUN,
            "tree.tar.gz": tree,
            "given.json": json.dumps({**given, "files": dict(edit)}).encode(),
        },
        read_only=shown,
        environment={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC"},
        limits=LIMITS,
    )
    said = outcome.output.decode("utf-8", "replace")
    _, marked, told = said.rpartition(f"\n{proof}")
    if outcome.stopped_by or not marked:
        return None, (f"Ended: too much {outcome.stopped_by}. " if outcome.stopped_by else "") + said[
            -DETAIL_CHARS:
        ]
    return json.loads(told), ""
