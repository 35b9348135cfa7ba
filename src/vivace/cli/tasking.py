"""`vivace run` when it runs: one task in the foreground, from the arguments to an exit code.

Owns how it is begun and how Ctrl-C ends it. Does not own the task (`agent.loop`) nor what is printed
(`show.task`).
"""

import asyncio
import signal
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.loop.opening import check_can_call_tools, open_task
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.cli.commands.run import Given
from vivace.cli.connection import with_model_here
from vivace.cli.show.task import TaskFace
from vivace.config import Settings


def run_task(settings: Settings, given: Given) -> int:
    """Work on the task; return the exit code."""
    check_can_call_tools(settings, settings.model)
    return asyncio.run(_run(with_model_here(settings), given))


async def _run(settings: Settings, given: Given) -> int:
    face = TaskFace(given.output_format)
    connection = Connection(settings, face.progress)
    try:
        task = await open_task(
            settings,
            Path.cwd(),
            given.task,
            face,
            connection,
            policy=Policy(given.access, given.asking),
            limits=TaskLimits(given.max_turns, given.max_tokens, given.max_minutes * 60),
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.stop)
        return (await task.run()).exit_code
    finally:
        await connection.close()
