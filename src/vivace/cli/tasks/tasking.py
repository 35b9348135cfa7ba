"""`vivace run` when it runs: one task, in the foreground from the arguments to an exit code, or started only.

Owns how it is begun and how Ctrl-C ends it. Does not own the task (`agent.loop`, `agent.tasks`) nor what is
printed (`show.task`).
"""

import asyncio
import signal
from pathlib import Path

import click

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.conversation.transcript.file import new_id
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.loop.opening import can_call_tools, check_instruction, open_desk, open_task
from vivace.agent.loop.task import TaskLimits
from vivace.agent.mcp.opening import opened_servers, servers_of
from vivace.agent.mcp.servers import NamedServer
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks.control import start_task
from vivace.agent.tasks.log import encode_record
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.units import UnitsTask
from vivace.agent.trust.project import ProjectFiles
from vivace.cli.installation.fetching import with_model_here
from vivace.cli.show.screen import complain
from vivace.cli.show.task import TaskFace
from vivace.cli.tasks.task_options import OutputFormat, RunOptions
from vivace.cli.tasks.trusting import project_for
from vivace.config import Settings
from vivace.errors import DONE


def run_task(settings: Settings, given: RunOptions) -> int:
    """Work on the task; return the exit code."""
    _check(given)
    if not can_call_tools(settings, settings.model):
        return asyncio.run(_run_units(with_model_here(settings), given))
    here = Path.cwd()
    project = ProjectFiles(here) if given.no_project else project_for(settings, here)
    servers = servers_of(settings, project)
    return asyncio.run(_run(with_model_here(settings), given, servers))


def start_in_background(settings: Settings, given: RunOptions) -> int:
    """Start the task and print its id."""
    _check(given)
    uses_project = not given.no_project and bool(project_for(settings, Path.cwd()))
    task = start_task(
        with_model_here(settings),
        Path.cwd(),
        given.task,
        policy=_policy(given),
        limits=_limits(given),
        uses_project=uses_project,
    )
    return say_started(task, given.output_format)


def say_started(task: TaskFolder, output_format: OutputFormat) -> int:
    """Print the id of a background task, and what can be done with it."""
    if output_format == "text":
        complain(f"`vivace tasks watch {task.id}` shows it, `vivace tasks take {task.id}` takes it over.")
        click.echo(task.id)
    else:
        click.echo(encode_record(task.queued()))
    return DONE


def _check(given: RunOptions) -> None:
    """Raise what is wrong with the task, before a model is fetched or woken."""
    check_instruction(given.task)
    check_mentions(given.task, Path.cwd())


def _policy(given: RunOptions) -> Policy:
    return Policy(given.access, given.asking)


def _limits(given: RunOptions) -> TaskLimits:
    return TaskLimits(given.max_turns, given.max_tokens, given.max_minutes * 60)


async def _run(settings: Settings, given: RunOptions, servers: list[NamedServer]) -> int:
    face = TaskFace(given.output_format)
    connection = Connection(settings, face.progress)
    try:
        async with opened_servers(servers, Path.cwd()) as opened:
            if servers:
                face.show(opened.step())
            task = await open_task(
                settings,
                Path.cwd(),
                given.task,
                face,
                connection,
                policy=_policy(given),
                limits=_limits(given),
                foreign_tools=opened.tools,
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.stop)
            return (await task.run()).exit_code
    finally:
        await connection.close()


async def _run_units(settings: Settings, given: RunOptions) -> int:
    """Let a small model work in its own way: an answer, or functions rewritten by a plan."""
    face = TaskFace(given.output_format)
    connection = Connection(settings, face.progress, max_turns=given.max_turns)
    try:
        journal = Journal(settings.state_dir / "undo")
        desk = await open_desk(Path.cwd(), given.task, face, _policy(given), journal)
        task = UnitsTask(new_id(), desk, connection, _limits(given))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.stop)
        ended = await task.run()
    finally:
        await connection.close()
    if ended.text and ended.entries:
        face.progress(ended.text)
    return ended.exit_code
