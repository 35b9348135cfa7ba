"""`vivace tasks` when it runs: each subcommand, from its arguments to an exit code.

Owns what is printed about an action. Does not own the actions (`agent.tasks.control`, `.takeover`)
nor the look of a list (`show.tasks`).
"""

import asyncio
import sys
import time
from collections.abc import Sequence

import click

from vivace.agent.events.task import ApprovalAsked
from vivace.agent.tasks import control
from vivace.agent.tasks.log import encode_record
from vivace.agent.tasks.records import AnyRecord, MessageTaken, RunnerBegan, TaskQueued, TaskTaken
from vivace.agent.tasks.store import TaskFolder, find_task, list_tasks
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.agent.tasks.takeover.taking import open_taking, take
from vivace.agent.tools.bounded import printable
from vivace.cli.edits.undoing import open_journal
from vivace.cli.show.screen import complain
from vivace.cli.show.task import TaskFace, show_question
from vivace.cli.show.tasks import as_json, table
from vivace.cli.show.terminal import TerminalPresenter
from vivace.config import Settings
from vivace.errors import DONE, FAILED, UsageError
from vivace.redaction import redact

POLL_S = 0.1


def list_all(settings: Settings, output_format: str) -> int:
    found = list_tasks(settings)
    if output_format == "json":
        for task, state in found:
            click.echo(as_json(task, state))
    elif found:
        click.echo(table(found))
    else:
        click.echo('There are no tasks yet. Begin one: vivace run --background "TASK".')
    return DONE


def watch_task(settings: Settings, part: str, output_format: str) -> int:
    """Print the steps so far and those to come. Return the task's exit code."""
    task = find_task(settings, part)
    face = TaskFace("text", f"`vivace tasks take {task.id}` takes them over")
    shown = 0
    while True:
        is_running = task.is_running()  # before the log is read: its end may be written meanwhile
        lines = task.lines()
        for line in lines[shown:]:
            if output_format == "json":
                click.echo(encode_record(line.step))
            else:
                _show(face, task, line.step)
        shown = len(lines)
        if not is_running:
            break
        time.sleep(POLL_S)
    state = task.state()
    if state.is_over:
        return state.exit_code
    complain(f"The task is {state.status}.", f"It goes on with `vivace tasks resume {task.id}`.")
    return FAILED


def _show(face: TaskFace, task: TaskFolder, step: AnyRecord) -> None:
    match step:
        case TaskQueued() | RunnerBegan() | MessageTaken() | TaskTaken():
            return
        case ApprovalAsked() as logged:
            asked = task.whole_question(logged)
            show_question(asked)
            face.progress(f"Answer it: {_to_answer(task, asked)}, or no")
        case _:
            face.show(step)


def steer(settings: Settings, part: str, text: str) -> int:
    task = find_task(settings, part)
    if not control.steer_task(task, text):
        complain(
            "The task has just ended: what you said waits.",
            f"`vivace tasks resume {task.id}` goes on with it.",
        )
        return FAILED
    return DONE


def answer(settings: Settings, part: str, *, is_allowed: bool, reason: str, about: str) -> int:
    """Answer what the task asks. A yes without `about` shows the question, and is not taken."""
    task = find_task(settings, part)
    asked = task.state().asked
    if asked is not None and is_allowed and not about:
        show_question(asked)
        raise UsageError("Nothing was allowed: a yes must name its question.", f"`{_to_answer(task, asked)}`")
    if not control.answer_task(task, is_allowed=is_allowed, reason=reason, digest=about):
        complain("The task was interrupted.", f"`vivace tasks resume {task.id}` lets it ask again.")
        return FAILED
    return DONE


def _to_answer(task: TaskFolder, asked: ApprovalAsked) -> str:
    """Return the command that allows what was shown, and nothing else."""
    return f"vivace tasks answer {task.id} yes --about {asked.digest[: control.ABOUT_CHARS]}"


def stop(settings: Settings, part: str) -> int:
    control.stop_task(find_task(settings, part))
    return DONE


def resume(settings: Settings, part: str, text: str) -> int:
    control.resume_task(settings, find_task(settings, part), text)
    return DONE


def show_diff(settings: Settings, part: str, *, is_short: bool) -> int:
    changes = read_changes(find_task(settings, part))
    text = changes.summary() if is_short else changes.diff().rstrip("\n")
    click.echo(redact(printable(text)) if text else "The task has changed nothing.")
    return DONE


def take_over(settings: Settings, part: str, paths: Sequence[str], *, is_sure: bool) -> int:
    task = find_task(settings, part)
    if not task.state().is_over and task.is_running():
        raise UsageError("The task still runs.", f"Wait for it, or `vivace tasks stop {task.id}`.")
    if not is_sure and not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask at.", "Use --yes to take all of it.")
    journal = open_journal(settings)
    taking = open_taking(task, paths)
    for link in taking.left_out:
        complain(f"{link} is a symbolic link out of the folder, which is not taken over.")
    if taking.is_empty:
        click.echo("There is nothing to take: your folder has all of it.")
        return DONE
    for line in taking.beside:
        click.echo(printable(f"Along with it: {line}"))
    presenter = TerminalPresenter(verbose=False, was_run=True)  # whether it was, its model has said
    asyncio.run(take(task, taking, "always" if is_sure else "ask", presenter, journal))
    return DONE


def remove(settings: Settings, part: str) -> int:
    control.remove_task(find_task(settings, part))
    return DONE


def clean(settings: Settings) -> int:
    removed = control.clean_tasks(settings)
    click.echo(f"Removed {', '.join(removed)}." if removed else "There is nothing to clean.")
    return DONE
