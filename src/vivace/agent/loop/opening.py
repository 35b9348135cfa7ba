"""From settings and a folder to a task that can run.

Owns which models can call tools, and what a task is begun with: tools, policies, the sandbox, the journal.
Does not run it (`task`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.transcript.file import new_id
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.loop.calls import Desk, TaskPresenter
from vivace.agent.loop.checkpoint import new_checkpoint
from vivace.agent.loop.task import Task, TaskLimits
from vivace.agent.memory.recall import LARGE_CHARS, Memory, Recalled
from vivace.agent.permissions.policy import Policy, project_policy
from vivace.agent.sandbox.here import sandbox_problem
from vivace.agent.tools.base import Tool, ToolContext
from vivace.agent.tools.toolbox import own_tools
from vivace.config import Settings
from vivace.errors import UsageError
from vivace.models.store import weights_bytes
from vivace.models.tokenizer import SCRIPTED, script_of

LEAST_BYTES = (
    3_500_000_000  # of weights: 7B in 4 bits has 4.4 GB; smaller models write calls and do not mean them
)


def can_call_tools(settings: Settings, model: str) -> bool:
    """Return whether a model works well with tools: one of an upstream, or one of about 7B at least.

    Smaller ones edit by plan and unit instead.
    """
    if settings.is_elsewhere(model):
        return True
    if model.startswith(SCRIPTED):
        is_written = Path(model.removeprefix(SCRIPTED)).is_file()
        return not is_written or bool(script_of(model).get("steps"))
    size_bytes = weights_bytes(settings, model)
    return size_bytes is None or size_bytes >= LEAST_BYTES  # None: on the hub, it is seen when it is here


async def open_task(
    settings: Settings,
    folder: Path,
    instruction: str,
    presenter: TaskPresenter,
    connection: Connection,
    *,
    policy: Policy,
    limits: TaskLimits,
    foreign_tools: Sequence[Tool] = (),
) -> Task:
    """Return a task in this folder. Nothing is asked yet.

    `foreign_tools` are those of other programs.
    """
    check_instruction(instruction)
    journal = Journal(settings.state_dir / "undo")
    desk = await open_desk(folder, instruction, presenter, policy, journal, foreign_tools=foreign_tools)
    desk.recalled = await asyncio.to_thread(recall, settings, folder, instruction)
    desk.is_tainted |= desk.recalled.has_strangers_text
    checkpoint = new_checkpoint(opening_message(desk.recalled, instruction))
    return Task(new_id(), connection, settings.model, desk, limits, checkpoint)


def recall(settings: Settings, folder: Path, instruction: str) -> Recalled:
    """Return what is remembered about a task in this folder."""
    return Memory(folder, settings.state_dir, settings.config_dir, LARGE_CHARS).recall(instruction)


def opening_message(recalled: Recalled, instruction: str) -> str:
    """Return the task behind the rules of its folder and the notes that fit it."""
    return "\n\n".join(filter(None, [recalled.rules, recalled.reminder, instruction]))


def check_instruction(instruction: str) -> None:
    if not instruction.strip():
        raise UsageError("The task is empty.", 'Say what is to be done: vivace run "TASK".')


async def open_desk(
    folder: Path,
    instruction: str,
    presenter: TaskPresenter,
    policy: Policy,
    journal: Journal,
    *,
    project_folder: Path | None = None,
    foreign_tools: Sequence[Tool] = (),
) -> Desk:
    """Return what the turns of a task in this folder share. Finish what a killed one was writing.

    `project_folder` has the project's own policy, if the task works on a copy of it. What `foreign_tools` say
    of themselves is text that the user did not write, so with them a task is tainted from the beginning.
    """
    project = project_policy(project_folder or folder)
    policies = (policy, project) if project else (policy,)
    problem = await sandbox_problem()
    context = ToolContext(
        folder,
        policies,
        has_sandbox=problem is None,
        sandbox_remedy=problem.hint if problem else "",
        sandbox_state=journal.folder.with_name("sandbox"),
    )
    journal.heal()
    tools = [*own_tools(), *foreign_tools]
    own = replace(journal, root=folder)  # what is written in it is the task's
    return Desk(tools, context, own, instruction, presenter, is_tainted=bool(foreign_tools))
