"""Slash commands about background tasks, and about what a task may do.

Owns their words. Does not own the rules (`agent.permissions`), tasks (`agent.tasks`), nor when a task is
announced (`background`).
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from vivace.agent.events import task as steps
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import control
from vivace.agent.tasks.state import TaskState
from vivace.agent.tasks.store import TaskFolder, find_task, list_tasks
from vivace.agent.tasks.takeover.offering import offer_task
from vivace.errors import UsageError
from vivace.redaction import redact
from vivace.tui.background import question_block, short_id
from vivace.tui.prompt.menu import Entry
from vivace.tui.transcript.blocks import Note, Table

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

WATCH_S = 0.5  # between two looks at a task that is watched
WATCHED_STEPS = 12
TASK_ACTIONS = {
    "watch": "its steps, as they come",
    "take": "take its changes over: all, or hunk by hunk",
    "steer": "tell it something: /tasks ID steer TEXT",
    "yes": "let its call run",
    "no": "do not let its call run",
    "stop": "end it; what it did stays in its own copy",
    "resume": "let it go on",
    "remove": "forget it, with its copy of the folder",
}
VERDICTS = {"allow": "yes", "ask": "asks you", "refuse": "no"}


async def show_permissions(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Say what a task may do, what it must ask for, and who says so; or choose another mode."""
    from vivace.agent.permissions.modes import MODES, mode_named, overview
    from vivace.agent.permissions.policy import PROJECT_FILE, project_policy
    from vivace.agent.sandbox.here import has_sandbox

    if argument:
        session.use_mode(mode_named(argument))
    mode, project, is_walled = session.mode, project_policy(session.folder), await has_sandbox()
    rows = [
        f"mode      {mode.name}: {mode.help}",
        f"          access {mode.policy.access}, asking {mode.policy.asking}",
        f"project   {_project_in_words(project, PROJECT_FILE)}",
        f"sandbox   {'commands run in it' if is_walled else 'none here: every command asks'}",
        "",
    ]
    policies = [mode.policy, *([project] if project else [])]
    for what, verdict in overview(policies, has_sandbox=is_walled):
        rows.append(f"{what:<30}{VERDICTS[verdict.kind]}")
    rows += ["", "Never written: .git, .vivace, configurations of shells and editors."]
    rows.append("An edit by diff is always yours to take or leave.")
    others = ", ".join(each.name for each in MODES)
    rows.append(f"{app.key_map.shown('next_mode')} or /permissions MODE: {others}")
    app.transcript.add(Table(rows, "Permissions"))


def _project_in_words(project: Policy | None, file: str) -> str:
    if project is None:
        return f"no restrictions ({file} is not there)"
    more = f", protects {', '.join(project.protected)}" if project.protected else ""
    return f"{file}: access {project.access}, asking {project.asking}{more}"


async def start_background(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Begin a task beside the conversation, with what was said so far."""
    del app
    if not argument:
        raise UsageError("What is to be done?", "/background TEXT")
    await session.start_background(argument)


async def show_tasks(app: "VivaceApp", session: "Session", argument: str) -> None:
    """List tasks, show one, or do something with it: /tasks [ID [ACTION [TEXT]]]."""
    part, _, rest = argument.partition(" ")
    if not part:
        await _list_tasks(app, session)
        return
    task = await asyncio.to_thread(find_task, session.settings, part)
    action, _, text = rest.strip().partition(" ")
    match action:
        case "":
            await _choose_action(app, task)
        case "watch":
            await watch(app, task)
        case "steer":
            is_heard = await asyncio.to_thread(control.steer_task, task, text)
            app.transcript.add(Note("told" if is_heard else "It has ended meanwhile: resume it."))
        case "yes" | "no":
            digest = show_question(app, await asyncio.to_thread(task.state))
            await _answer(task, is_allowed=action == "yes", digest=digest, text=text)
        case "stop":
            await asyncio.to_thread(control.stop_task, task)
        case "resume":
            await asyncio.to_thread(control.resume_task, session.settings, task, text)
            session.background.look_again_at(task)
        case "take":
            await offer_task(session.talk, task)
        case "remove":
            await asyncio.to_thread(control.remove_task, task)
            app.transcript.add(Note(f"Removed the task {task.id}."))
        case _:
            raise UsageError(f"There is no action {action!r}.", f"Actions: {', '.join(TASK_ACTIONS)}.")


async def _list_tasks(app: "VivaceApp", session: "Session") -> None:
    found = await asyncio.to_thread(list_tasks, session.settings)
    if not found:
        app.transcript.add(Note("There are no background tasks.", "/background TEXT begins one."))
        return
    entries = []
    for task, state in found[:100]:
        assert state.queued is not None
        hint = f"{short_id(task.id)}, {state.status}, {_numbers(state)}"
        entries.append(Entry(redact(" ".join(state.queued.task.split())), task.id, hint))
    app.menu.open(entries, lambda chosen: app.run_command(f"/tasks {chosen}"), title="Tasks:")


async def _choose_action(app: "VivaceApp", task: TaskFolder) -> None:
    """Show how a task is, and offer what can be done with it now."""
    state = await asyncio.to_thread(task.state)
    app.transcript.add(Table(_in_words(task, state), "Task"))
    digest = show_question(app, state)
    if state.status == "waiting":
        actions = ["yes", "no", "watch", "stop"]
    elif state.is_over or state.status == "interrupted":
        actions = ["take", "watch", "resume", "remove"]
    else:
        actions = ["watch", "steer", "stop"]
    entries = [Entry(name, name, TASK_ACTIONS[name]) for name in actions]

    def do(name: object) -> None:
        line = f"/tasks {short_id(task.id)} {name}"
        if name in ("yes", "no"):
            app.run_shown(_answer(task, is_allowed=name == "yes", digest=digest))
        elif name == "steer":
            app.editor.set_text(f"{line} ")
        else:
            app.run_command(line)

    app.menu.open(entries, do, title="Task:")


def show_question(app: "VivaceApp", state: TaskState) -> str:
    """Show all of what a task asks; return the digest by which an answer names it."""
    asked = state.asked
    if asked is None:
        return ""
    app.transcript.add(question_block(asked))
    return asked.digest


async def _answer(task: TaskFolder, *, is_allowed: bool, digest: str, text: str = "") -> None:
    await asyncio.to_thread(control.answer_task, task, is_allowed=is_allowed, reason=text, digest=digest)


async def watch(app: "VivaceApp", task: TaskFolder) -> None:
    """Show the steps of a task as they come, to its end or until the next look at a task."""
    block = app.transcript.add(Table([], f"Task {short_id(task.id)}"))
    app.watched = block
    while app.watched is block:
        is_running = await asyncio.to_thread(task.is_running)
        state, lines = await asyncio.to_thread(lambda: (task.state(), task.lines()))
        block.change([*_in_words(task, state), *steps_in_words(line.step for line in lines)])
        app.transcript.touch()
        if not is_running:
            return
        await asyncio.sleep(WATCH_S)


def steps_in_words(taken: Iterable[object]) -> list[str]:
    """Return a line for each of the last calls, and what the model said last."""
    lines = []
    for step in taken:
        match step:
            case steps.CallStarted(tool=tool, title=title):
                lines.append(f"· {tool} {title}")
            case steps.CallEnded(tool=tool, status=status, summary=summary) if status != "done":
                lines.append(f"  {tool} {status}: {summary}")
            case steps.StepBegan(key=key, title=title):
                lines.append(f"· {key}  {title}")
            case steps.StepEnded(key=key, status="failed", output=output):
                lines.append(f"  {key}  failed: {output}")
            case steps.FilesWritten(paths=paths):
                lines.append(f"  wrote {', '.join(paths)}")
            case steps.ModelAnswered(text=text) if text:
                lines.append(f"  {text}")
            case steps.Steered(text=text):
                lines.append(f"↪ {text}")
    return [redact(" ".join(line.split()) if line[:2] != "  " else line) for line in lines[-WATCHED_STEPS:]]


def _in_words(task: TaskFolder, state: TaskState) -> list[str]:
    assert state.queued is not None
    asked = [f"asks     /tasks {short_id(task.id)} shows it, and takes the answer"] if state.asked else []
    return [
        redact(line)
        for line in [
            f"task     {' '.join(state.queued.task.split())}",
            f"state    {state.status}, {_numbers(state)}, {state.queued.model}",
            f"last     {state.last}",
            *asked,
            f"id       {task.id}",
        ]
    ]


def _numbers(state: TaskState) -> str:
    return f"{state.turns} turns, {state.tokens} tokens, {state.seconds:.0f} s"
