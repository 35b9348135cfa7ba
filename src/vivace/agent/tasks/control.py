"""What people may do with background tasks: start, resume, steer, answer, stop, take over, remove, clean.

Owns these actions for every face. Each works whether or not the task's process lives, or says why not. Does
not own the work (`working`), nor how tasks are shown.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.conversation.transcript.file import new_id
from vivace.agent.events.task import TaskEnded, WorkflowStarted
from vivace.agent.loop.asking import is_whole
from vivace.agent.loop.opening import can_call_tools, check_instruction, opening_message, recall
from vivace.agent.loop.task import EXIT_CODES, TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import inbox
from vivace.agent.tasks.inbox import Message
from vivace.agent.tasks.log import TaskLog, keep_question
from vivace.agent.tasks.records import SCHEMA, MessageTaken, RunnerBegan, TaskQueued, Way
from vivace.agent.tasks.store import TaskFolder, all_folders, find_task, list_tasks, tasks_dir
from vivace.agent.tasks.workplace import make_workplace, remove_workplace
from vivace.child_python import module_command
from vivace.config import Settings
from vivace.errors import TaskBusy, TaskNotFound, UsageError

__all__ = [
    "ABOUT_CHARS",
    "answer_task",
    "clean_tasks",
    "find_task",
    "list_tasks",
    "remove_task",
    "resume_task",
    "start_task",
    "steer_task",
    "stop_task",
]

ABOUT_CHARS = 12  # of a digest, by which an answer names its question
POLL_S = 0.02
HEARD_S = 10.0  # until a process that lives has read a message
STOP_S = 15.0  # until a process that was told to stop has ended by itself


def start_task(
    settings: Settings,
    folder: Path,
    instruction: str,
    *,
    policy: Policy,
    limits: TaskLimits,
    context: Sequence[dict[str, Any]] = (),
    workflow: WorkflowStarted | None = None,
    uses_project: bool = True,
) -> TaskFolder:
    """Begin a task in the background. Return when its workplace is there and its process is started.

    `context` is what was said before in a conversation, as items of a request's input. With a `workflow` its
    steps are the task, and `instruction` only names it. `uses_project`: with the MCP servers that the folder
    names, if they are trusted.
    """
    check_instruction(instruction)
    folder = folder.resolve()
    if workflow is None:
        check_mentions(instruction, folder)
    task = TaskFolder(tasks_dir(settings) / new_id())
    task.path.mkdir(mode=0o700, parents=True)
    lock = task.take_lock()
    try:
        workspace = make_workplace(folder, task.work, task.start_file)
        recalled = recall(settings, folder, instruction)
        queued = TaskQueued(
            schema=SCHEMA,
            id=task.id,
            folder=str(folder),
            workspace=str(workspace),
            way=_way(settings, workflow),
            model=settings.model,
            task=instruction,
            access=policy.access,
            asking=policy.asking,
            limits=limits,
            at_s=time.time(),
            context=tuple(context),
            opening=opening_message(recalled, instruction),
            is_tainted=recalled.has_strangers_text,
            uses_project=uses_project,
        )
        with TaskLog(task.log_file) as log:
            log.append(queued)
            if workflow is not None:
                log.append(workflow)
        begin_run(task)
        _spawn(settings, task, lock)
    except BaseException:
        _delete(task)
        raise
    finally:
        os.close(lock)
    return task


def _way(settings: Settings, workflow: WorkflowStarted | None) -> Way:
    if workflow is not None:
        return "workflow"
    return "tools" if can_call_tools(settings, settings.model) else "units"


def resume_task(settings: Settings, task: TaskFolder, text: str = "") -> None:
    """Let a task go on from its log, with something more to tell the model if there is."""
    lock = task.take_lock()
    try:
        state = task.state()
        if state.status == "done" and not text:
            raise UsageError(
                f"The task {task.id} is done.", f'Say what more to do: vivace tasks resume {task.id} "…".'
            )
        _check_mentions(task, text)
        begin_run(task)
        if text:
            inbox.put(task.inbox_file, Message("steer", text))
        _spawn(settings, task, lock)
    finally:
        os.close(lock)


def begin_run(task: TaskFolder) -> None:
    """Write down that a process is started. What an earlier one was told, but for steers, is over."""
    with TaskLog(task.log_file) as log:
        for number, message in inbox.read_after(task.inbox_file, task.state().messages_taken):
            if message.kind == "steer":
                break
            log.append(MessageTaken(number=number, kind=message.kind))
        log.append(RunnerBegan())
    keep_question(task.question_file, None)


def steer_task(task: TaskFolder, text: str) -> bool:
    """Tell a running task something. Return False if it ended meanwhile: then it waits for a resume.

    Raise TaskBusy if the process does not listen.
    """
    if not text.strip():
        raise UsageError("There is nothing to say.", f'vivace tasks steer {task.id} "…".')
    _check_at_work(task)
    _check_mentions(task, text)
    return _heard(task, inbox.put(task.inbox_file, Message("steer", text)))


def answer_task(task: TaskFolder, *, is_allowed: bool, reason: str = "", digest: str = "") -> bool:
    """Answer what a task asks. Return False if its process ended meanwhile: then it asks again.

    `digest` is of what the person saw, or its first `ABOUT_CHARS`: an answer to another question is refused,
    and so is a yes that names none.
    """
    asked = task.state().asked
    if asked is None or not task.is_running():
        raise UsageError(f"The task {task.id} asks nothing.", "`vivace tasks` shows which one waits.")
    if not asked.digest.startswith(digest):
        raise UsageError("The task asks something else by now.", f"`vivace tasks watch {task.id}` shows it.")
    if is_allowed and len(digest) < ABOUT_CHARS:
        raise UsageError("A yes must name its question.", f"`vivace tasks watch {task.id}` shows both.")
    if is_allowed and not is_whole(asked):
        raise UsageError("The question cannot be shown whole, so it cannot be allowed.", "Answer no.")
    message = Message("answer", reason, is_allowed=is_allowed, call_id=asked.call_id, digest=asked.digest)
    return _heard(task, inbox.put(task.inbox_file, message))


def stop_task(task: TaskFolder) -> None:
    """End a task. What it wrote stays in its workplace. Return when it has ended."""
    if task.state().is_over:
        return
    if task.is_running():
        inbox.put(task.inbox_file, Message("stop"))
        _wait(lambda: not task.is_running(), STOP_S)
    if (pid := task.pid()) is not None:  # it does not listen
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _wait(lambda: not task.is_running(), STOP_S)
    with task.locked():
        if not task.state().is_over:
            with TaskLog(task.log_file) as log:
                log.append(TaskEnded(reason="stopped", exit_code=EXIT_CODES["stopped"]))
        keep_question(task.question_file, None)


def remove_task(task: TaskFolder) -> None:
    """Remove a task that does not run, its workplace and its log."""
    with task.locked():
        _delete(task)


def clean_tasks(settings: Settings) -> list[str]:
    """Remove what was left of tasks that were never begun or only half removed. Return their ids."""
    removed = []
    for task in all_folders(settings):
        if task.state().queued is not None and task.work.exists() and task.start_file.exists():
            continue
        with contextlib.suppress(TaskBusy):
            remove_task(task)
            removed.append(task.id)
    return removed


def _check_mentions(task: TaskFolder, text: str) -> None:
    """Raise what is wrong with the mentions of a message, which are of the task's own copy of the folder."""
    if (queued := task.state().queued) is not None:
        check_mentions(text, Path(queued.workspace))


def _check_at_work(task: TaskFolder) -> None:
    state = task.state()
    if state.status not in ("queued", "running", "waiting") or not task.is_running():
        raise UsageError(
            f"The task {task.id} does not run: it is {state.status}.",
            f'It goes on with `vivace tasks resume {task.id} "…"`.',
        )


def _heard(task: TaskFolder, number: int) -> bool:
    """Return whether the task's process has read a message. Wait for that while it lives."""

    def is_settled() -> bool:
        return task.state().messages_taken >= number or not task.is_running()

    if not _wait(is_settled, HEARD_S):
        raise TaskBusy(f"The task {task.id} does not listen.", f"It was told. See {task.output_file}.")
    return task.state().messages_taken >= number


def _wait(is_so: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _delete(task: TaskFolder) -> None:
    folder = None
    with contextlib.suppress(TaskNotFound):  # it was never begun
        folder = Path(task.queued().folder)
    remove_workplace(task.work, folder)
    task.delete()


def _spawn(settings: Settings, task: TaskFolder, lock: int) -> None:
    """Start the process of a task, which outlives us and holds the lock from its first instant.

    Return when the lock's file says which it is.
    """
    with task.output_file.open("ab") as output:
        child = subprocess.Popen(
            module_command("vivace.agent.tasks.process", str(task.path), str(lock)),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[lock],
            cwd="/",
        )
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(settings.for_child())
    child.wait()
