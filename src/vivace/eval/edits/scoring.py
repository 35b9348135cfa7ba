"""Whether an answer is right: the task's own test, run with it in the sandbox.

Owns how a program is judged. Passing means that it ran to its end: a program that leaves early, whatever its
exit code, has shown nothing. Does not own the sandbox (`agent.sandbox`).
"""

import secrets
from typing import Literal

from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.child_python import python_command
from vivace.eval.edits.tasks import Task

Verdict = Literal["passed", "failed", "broke", "error", "time", "memory", "processes", "output", "disk"]
LIMITS = Limits(seconds=120.0, cpu_seconds=10.0, output_bytes=1 << 20)
DETAIL_CHARS = 300
# As a module, so that its name is not "__main__" and `inspect` finds it. EditEval/188 uses `urllib.parse`
# without importing it, which works wherever something else has.
RUN = """
import os, random, sys, time, urllib.parse
proof, is_timed = sys.argv[1:]
sys.path.insert(0, ".")
random.seed(0)
if is_timed == "timed":
    time.time = time.process_time
import program
os.write(1, proof.encode())
"""


async def judge(task: Task, code: str) -> tuple[Verdict, str]:
    """Run the task's test over `code`. Return the verdict, and the end of what a program that failed said."""
    files = task.files_beside(code) | {"program.py": task.program(code)}
    proof = secrets.token_hex(16)  # written behind the last line of the program
    outcome = await run_sandboxed(
        python_command("-s", "-B", "-c", RUN, proof, "timed" if task.is_timed else ""),
        files={name: text.encode("utf-8", "replace") for name, text in files.items()},
        environment={"PYTHONHASHSEED": "0"},
        limits=LIMITS,
    )
    verdict = _verdict(outcome, proof.encode())
    said = outcome.output.decode("utf-8", "replace").strip()
    return verdict, "" if verdict == "passed" else said[-DETAIL_CHARS:]


async def check_sandbox() -> None:
    """Raise `SandboxUnavailable` before hours are spent on answers that cannot be judged."""
    await run_sandboxed(["true"])


def _verdict(outcome: Outcome, proof: bytes) -> Verdict:
    if outcome.stopped_by:
        return outcome.stopped_by
    if outcome.is_success and proof in outcome.output:
        return "passed"
    return "failed" if b"AssertionError" in outcome.output else "error"
