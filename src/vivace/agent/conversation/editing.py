"""An edit as a turn of a conversation: which file, what was rejected before, then the edit itself.

Owns what the conversation adds to an edit. Does not own the edit (`edits.flow`).
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.conversation.message.mentions import target_of
from vivace.agent.conversation.message.repository import choose_file
from vivace.agent.conversation.transcript.history import History
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.edit import checked_instruction, read_scope
from vivace.agent.edits.find.target import Target
from vivace.agent.edits.flow import Approval, EditTask, run_edit
from vivace.agent.events import FileChosen
from vivace.agent.model import Model
from vivace.agent.presenter import Presenter


async def edit_in_turn(
    history: History,
    model: Model,
    presenter: Presenter,
    journal: Journal,
    *,
    text: str,
    mentions: Sequence[str],
    approval: Approval,
) -> None:
    """Find the file that the message is about, and do the edit."""
    instruction = checked_instruction(with_rejection(history, without_mentions(text, mentions)))
    await asyncio.to_thread(journal.heal)  # an edit that was cut short is finished before its file is read
    target = await _target(history, model, presenter, instruction, mentions)
    scope = read_scope(target, to_write=approval != "never")
    await run_edit(EditTask(scope, instruction, approval), model, presenter, journal)


async def _target(
    history: History, model: Model, presenter: Presenter, instruction: str, mentions: Sequence[str]
) -> Target:
    folder = Path(history.folder)
    if mentions:
        target = target_of(mentions[0], folder)
        presenter.show(FileChosen(target.path, "mention"))
        return target
    chosen = await choose_file(model, folder, instruction, history.last_path)
    presenter.show(chosen)
    return Target(chosen.path, None)


def without_mentions(text: str, mentions: Sequence[str]) -> str:
    """Return the instruction with names where it has mentions: `@src/app.py:main` is `main`."""
    for mention in mentions:
        path, _, name = mention.partition(":")
        plain = name if name and not name[0].isdigit() else Path(path).name
        text = text.replace(f'@"{mention}"', plain).replace(f"@{mention}", plain)
    return text


def with_rejection(history: History, instruction: str) -> str:
    """Add why the edit before was rejected, if it was: the model should not write the same again."""
    before = history.turns[-2] if len(history.turns) > 1 else None
    if before is None or not before.edits or before.edits[-1].outcome != "rejected":
        return instruction
    last = before.edits[-1]
    why = f" ({last.reason})" if last.reason else ""
    return f"{instruction}\n(Before that: {before.text} Your change to {last.unit} was rejected{why}.)"
