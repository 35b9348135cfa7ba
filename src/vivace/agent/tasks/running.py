"""A task's run in its own process: the settings that it was given, the work, and an end in the log.

Owns that every end is in the log, also one that nobody expected. Does not own the process (`process`) nor the
work (`working`).
"""

import asyncio
import logging
from pathlib import Path

from vivace.agent.events.base import Failed
from vivace.agent.events.task import TaskEnded
from vivace.agent.tasks.log import TaskLog
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.working import TaskWork
from vivace.config import settings_of_parent
from vivace.errors import FAILED, VivaceError

log = logging.getLogger("vivace.agent.tasks")


def run(path: str, settings: bytes) -> int:
    """Do the task of this folder with these settings. Return the exit code."""
    folder = TaskFolder(Path(path))
    try:
        return asyncio.run(TaskWork(folder, settings_of_parent(settings)).run()).exit_code
    except Exception as error:  # the boundary of the process: it says why, and ends
        log.error("the task broke off", exc_info=error)
        _end(folder, error)
        return error.exit_code if isinstance(error, VivaceError) else FAILED


def _end(folder: TaskFolder, error: Exception) -> None:
    """Write the end into the log, if the log can be written at all."""
    if isinstance(error, VivaceError):
        told = Failed.of(error)
    else:
        told = Failed(code="failed", message=f"The task broke off ({type(error).__name__}: {error}).")
    with TaskLog(folder.log_file) as opened:
        opened.append(TaskEnded(reason="failed", exit_code=FAILED, error=told))
