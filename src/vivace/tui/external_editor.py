"""The user's own editor, which has the terminal for a while: a message, a proposal, a conflict, a note.

Owns the temporary files and which program is started. Does not own what comes of the text.
"""

import asyncio
import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vivace.agent.edits.conflict import TakeText
from vivace.agent.edits.proposal import UseText
from vivace.errors import UsageError
from vivace.tui.presenting.questions import ConflictQuestion, Review

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp


async def write_message(app: "VivaceApp") -> None:
    """Let the user write the message in the editor."""
    data = await edit_bytes(app, "message.md", app.editor.whole_text.encode())
    app.editor.set_text(data.decode("utf-8", "replace").rstrip("\n"))


async def edit_proposal(app: "VivaceApp", review: Review) -> None:
    """Let the user change the proposed text before it is taken."""
    with _failures_told(), TemporaryDirectory() as folder:
        files = review.proposal.write_to(Path(folder))
        await _open(app, *files)
        review.resolve(UseText(tuple(file.read_bytes() for file in files)))


async def merge_conflict(app: "VivaceApp", question: ConflictQuestion) -> None:
    """Let the user merge the edit with what the file has become."""
    conflict = question.conflict
    question.resolve(TakeText(await edit_bytes(app, conflict.path.name, conflict.marked)))


async def edit_bytes(app: "VivaceApp", name: str, data: bytes) -> bytes:
    """Return what the user has made of this text."""
    with _failures_told(), TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        await _open(app, file)
        return file.read_bytes()


async def _open(app: "VivaceApp", *files: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with app.without_terminal():
        process = await asyncio.create_subprocess_exec(*shlex.split(editor), *map(str, files))
        if code := await process.wait():
            raise OSError(f"{editor} ended with exit code {code}")


@contextlib.contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"The editor failed: {error}", "Set EDITOR to one that works.") from error
