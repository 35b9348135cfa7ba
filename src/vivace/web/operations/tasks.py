"""Requests about background tasks.

Owns nothing but the way to `agent.tasks`, in a thread: its functions block. A task runs in a process of its
own, whatever happens to this one.
"""

import asyncio

import msgspec

from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.modes import mode_named
from vivace.agent.tasks import control
from vivace.agent.tasks.state import TaskState
from vivace.agent.tasks.store import TaskFolder, find_task, list_tasks
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.agent.tasks.takeover.offering import offer_task
from vivace.redaction import redact, redact_values
from vivace.web.face import Face
from vivace.web.messages import task_requests
from vivace.web.messages.answers import TaskLines, TaskNamed, TaskRow, TaskRows, Text
from vivace.web.operations.table import answers

ASKED = ("tool", "title", "shown", "reason", "digest")  # of a question, whole
MAX_LINES = 2000  # of a log, in one answer


@answers(task_requests.TasksList)
async def list_all(face: Face, _: task_requests.TasksList) -> TaskRows:
    found = await asyncio.to_thread(list_tasks, face.host.settings)
    return TaskRows(tasks=[_row(task, state) for task, state in found])


@answers(task_requests.TasksStart)
async def start(face: Face, request: task_requests.TasksStart) -> TaskNamed:
    mode = mode_named(request.policy)
    live = face.conversation(request.conversation) if request.conversation else None
    task = await asyncio.to_thread(
        control.start_task,
        face.host.settings.for_tier("background"),
        face.folder,
        request.instruction,
        policy=mode.policy,
        limits=TaskLimits(),
        context=live.talk.handed_over() if live else (),
    )
    if live:
        live.talk.note(f"(In the background, as task {task.id.rpartition('-')[2]}: {request.instruction})")
    return TaskNamed(task=task.id)


@answers(task_requests.TasksLog)
async def read_log(face: Face, request: task_requests.TasksLog) -> TaskLines:
    task = await _find(face, request.task)
    lines = await asyncio.to_thread(task.lines)
    after = max(0, request.after)
    shown = lines[after : after + MAX_LINES]
    told = [redact_values(msgspec.to_builtins(line.step)) | {"at_s": line.at_s} for line in shown]
    return TaskLines(lines=told, next=after + len(shown))


@answers(task_requests.TasksDiff)
async def diff(face: Face, request: task_requests.TasksDiff) -> Text:
    changes = await asyncio.to_thread(read_changes, await _find(face, request.task))
    return Text(text=changes.diff())


@answers(task_requests.TasksSteer)
async def steer(face: Face, request: task_requests.TasksSteer) -> None:
    await asyncio.to_thread(control.steer_task, await _find(face, request.task), request.text)


@answers(task_requests.TasksAnswer)
async def answer_call(face: Face, request: task_requests.TasksAnswer) -> None:
    await asyncio.to_thread(
        control.answer_task,
        await _find(face, request.task),
        is_allowed=request.is_allowed,
        reason=request.reason,
        digest=request.digest,
    )


@answers(task_requests.TasksStop)
async def stop(face: Face, request: task_requests.TasksStop) -> None:
    await asyncio.to_thread(control.stop_task, await _find(face, request.task))


@answers(task_requests.TasksResume)
async def resume(face: Face, request: task_requests.TasksResume) -> None:
    settings = face.host.settings.for_tier("background")
    await asyncio.to_thread(control.resume_task, settings, await _find(face, request.task), request.text)


@answers(task_requests.TasksTake)
async def take(face: Face, request: task_requests.TasksTake) -> None:
    live = face.conversation(request.conversation)
    await live.begin(offer_task(live.talk, await _find(face, request.task)))


async def _find(face: Face, task: str) -> TaskFolder:
    return await asyncio.to_thread(find_task, face.host.settings, task)


def _row(task: TaskFolder, state: TaskState) -> TaskRow:
    assert state.queued is not None, "the list has only tasks that were begun"
    asked = state.asked
    return TaskRow(
        task=task.id,
        instruction=state.queued.task,
        folder=state.queued.folder,
        model=state.queued.model,
        status=state.status,
        last=redact(state.last),
        text=redact(state.text),
        turns=state.turns,
        tokens=state.tokens,
        seconds=state.seconds,
        asked={name: getattr(asked, name) for name in ASKED} if asked else None,
        is_taken=bool(state.taken),
    )
