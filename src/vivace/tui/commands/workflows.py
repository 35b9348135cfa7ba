"""`/workflow`: list recipes, run one beside the conversation, and watch it.

Owns their words. A workflow of the terminal is a background task: `/tasks` steers, stops and takes it over.
Does not own workflows (`agent.workflows`) nor tasks (`agent.tasks`).
"""

import asyncio
import shlex
from typing import TYPE_CHECKING

from vivace.agent.workflows.beginning import about, begin_workflow, wanted_inputs
from vivace.agent.workflows.finding import Found, list_workflows
from vivace.errors import UsageError
from vivace.tui.commands.tasks import watch
from vivace.tui.prompt.menu import Entry

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session


async def use_workflow(app: "VivaceApp", session: "Session", argument: str) -> None:
    """List workflows, or run one and watch it: /workflow [NAME [KEY=VALUE …]]."""
    name, _, rest = argument.strip().partition(" ")
    if not name:
        await _choose(app, session)
        return
    try:
        given = shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"{rest!r} cannot be read: {error}.", "/workflow NAME KEY=VALUE …") from error
    started = await asyncio.to_thread(begin_workflow, session.settings, session.folder, name, given)
    title = " ".join([f"workflow {name}", *given])
    task = await session.background.start(session.settings, title, session.mode.policy, workflow=started)
    await watch(app, task)


async def _choose(app: "VivaceApp", session: "Session") -> None:
    found = await asyncio.to_thread(list_workflows, session.settings, session.folder)
    entries = [Entry(each.name, each, f"{each.source}: {about(each)}") for each in found]

    def take(chosen: object) -> None:
        assert isinstance(chosen, Found)
        line = f"/workflow {chosen.name}"
        if chosen.is_usable and (keys := wanted_inputs(chosen)):
            app.editor.set_text(f"{line} {keys[0]}=")
        else:
            app.run_command(line)

    app.menu.open(entries, take, title="Workflows:")
