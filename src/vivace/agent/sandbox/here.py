"""Whether there is a sandbox on this machine: it is tried, and what is missing is told with its remedy.

Owns the question. Does not own the walls (`bubblewrap`) nor what may be done without them (`permissions`).
"""

from vivace.agent.sandbox.run import run_sandboxed
from vivace.errors import SandboxUnavailable


async def sandbox_problem() -> SandboxUnavailable | None:
    """Return why programs cannot be walled in here, and what to do about it. None: they can."""
    try:
        await run_sandboxed(["true"])
    except SandboxUnavailable as error:
        return error
    return None


def why_none(problem: SandboxUnavailable) -> str:
    """Return why there is no sandbox, where nobody has tried to run anything yet."""
    return problem.message.replace(", and nothing was run", "")


async def has_sandbox() -> bool:
    return await sandbox_problem() is None
