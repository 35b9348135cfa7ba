"""The changes of a background task as a turn of a conversation.

Owns that turn: it is shown, asked about and undone as an edit is. Does not own what is taken (`taking`).
"""

import asyncio

from vivace.agent.conversation.talk import Talk
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.edit import EditStarted
from vivace.agent.events.turn import WritingEnded
from vivace.agent.presenter import Presenter
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.takeover.taking import open_taking, take
from vivace.errors import UsageError


async def offer_task(talk: Talk, task: TaskFolder) -> None:
    """Offer the changes of a task as a turn of the conversation: all of it, by hunk, or edited first."""
    taking = await asyncio.to_thread(open_taking, task)
    if taking.is_empty:
        raise UsageError(f"The task {task.id} has nothing to take over.", "Its log says what it did.")

    async def offer(presenter: Presenter, journal: Journal) -> None:
        if taking.proposal.files:
            first = taking.proposal.files[0]
            presenter.show(EditStarted(first.source, first.unit, taking.instruction))
            presenter.show(WritingEnded())
        await take(task, taking, "ask" if taking.proposal.changed else "always", presenter, journal)

    beside = [f"along with it: {line}" for line in taking.beside]
    left = [f"left out, it leads elsewhere: {path}" for path in taking.left_out]
    await talk.make_offer("\n".join([f"Take over the task: {taking.instruction}", *beside, *left]), offer)
