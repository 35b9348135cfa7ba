"""The user's own editor, which has the terminal for a while: a message, a proposal, a conflict, a note.

Owns that the screen gives way to it and comes back, whatever becomes of the editor. Does not own the editor
(`agent.user_editor`), nor what comes of the text.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vivace.agent import user_editor
from vivace.agent.edits.conflict import TakeText
from vivace.agent.edits.proposal import UseText
from vivace.tui.presenting.questions import ConflictQuestion, Review

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp


async def write_message(app: "VivaceApp") -> None:
    """Let the user write the message in the editor."""
    data = await edit_bytes(app, "message.md", app.editor.whole_text.encode())
    app.editor.set_text(data.decode("utf-8").rstrip("\n"))


async def edit_proposal(app: "VivaceApp", review: Review) -> None:
    """Let the user change the proposed text before it is taken."""
    with TemporaryDirectory() as folder:
        files = review.proposal.write_to(Path(folder))
        with app.without_terminal():
            texts = await user_editor.edit_files(files)
    review.resolve(UseText(texts))


async def merge_conflict(app: "VivaceApp", question: ConflictQuestion) -> None:
    """Let the user merge the edit with what the file has become."""
    conflict = question.conflict
    question.resolve(TakeText(await edit_bytes(app, conflict.path.name, conflict.marked)))


async def edit_bytes(app: "VivaceApp", name: str, data: bytes) -> bytes:
    """Return what the user has made of this text."""
    with app.without_terminal():
        return await user_editor.edit_bytes(name, data)
