"""The process of a task: its own session, no terminal, one task, to its end.

    python -m vivace.agent.tasks.process FOLDER LOCK < settings.json

LOCK is the file descriptor that holds the task's lock, which the parent took: so no second process can begin
in between. Owns that every end is in the log, also one that nobody expected. Does not own the work
(`working`).
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

import msgspec

from vivace.agent.conversation.transcript.schema import Error
from vivace.agent.loop.steps import TaskEnded
from vivace.agent.tasks.log import TaskLog
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.working import TaskWork
from vivace.config import load_settings
from vivace.errors import FAILED, VivaceError

log = logging.getLogger("vivace.agent.tasks")


def main() -> int:
    folder, lock = TaskFolder(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    try:
        values = msgspec.json.decode(sys.stdin.buffer.read(), type=dict)
        return asyncio.run(TaskWork(folder, load_settings().having(**values)).run()).exit_code
    except Exception as error:  # the boundary of the process: it says why, and ends
        log.error("the task broke off", exc_info=error)
        _end(folder, error)
        return error.exit_code if isinstance(error, VivaceError) else FAILED
    finally:
        os.close(lock)  # others need not wait for the interpreter to end


def _end(folder: TaskFolder, error: Exception) -> None:
    """Write the end into the log, if the log can be written at all."""
    if isinstance(error, VivaceError):
        told = Error(code=error.code, message=error.message, hint=error.hint)
    else:
        told = Error(code="failed", message=f"The task broke off ({type(error).__name__}: {error}).")
    with TaskLog(folder.log_file) as opened:
        opened.append(TaskEnded(reason="failed", exit_code=FAILED, error=told))


if __name__ == "__main__":
    sys.exit(main())
