"""What an edit outside of a conversation is about, and letting the model read that before it begins.

Owns the place of an edit: the selection, the named unit, the function around a line, or the file. Owns the
reading ahead of one face, which ends when its edit begins. Does not own the edit (`live_edit`).
"""

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.prefilling import Prefiller
from vivace.agent.edits.apply.files import OpenFiles
from vivace.agent.edits.find.locate import locate_messages, shortlist
from vivace.agent.edits.find.target import Lines, Target
from vivace.agent.edits.find.units import unit_around
from vivace.agent.edits.part_writing import first_messages
from vivace.agent.edits.rewriting import UnitTask
from vivace.agent.edits.scope import EditScope, read_scope
from vivace.agent.memory.opening import memory_for
from vivace.agent.prompting import Message
from vivace.config import Settings
from vivace.web.broadcast import Broadcast
from vivace.web.messages.edit_requests import EditPlace, EditPrefill


def scope_of(path: Path, place: EditPlace, instruction: str, files: OpenFiles) -> EditScope:
    """Return what may change. Raise what is wrong with the file or the place."""
    lines = place.selection
    selector = Lines(lines.first_line, lines.last_line) if lines else place.unit or None
    scope = read_scope(Target(path, selector), to_write=True, instruction=instruction, files=files)
    if selector is None and place.line:
        return replace(scope, unit=scope.unit or unit_around(scope.units, place.line))
    return scope


class EditReading:
    """The model reads what the next edit of a face needs."""

    def __init__(self, settings: Settings) -> None:
        self._connection = Connection(settings, starts_server=False)
        self._prefiller = Prefiller(self._connection, Broadcast(), f"edit-{secrets.token_hex(4)}")

    async def update(self, folder: Path, path: Path, request: EditPrefill) -> None:
        """Read this next. A draft that has not begun is forgotten."""
        messages = await asyncio.to_thread(self._messages, folder, path, request)
        model = self._connection.settings.model
        await self._prefiller.update({"model": model, "input": messages, "temperature": 0, "store": False})

    async def close(self) -> None:
        await self._prefiller.finish()
        await self._connection.close()

    def _messages(self, folder: Path, path: Path, request: EditPrefill) -> list[Message]:
        """Return what the model reads first, without the beginning of its answer."""
        files = OpenFiles()
        files.set_buffer(path, request.text)
        scope = scope_of(path, request, request.draft, files)
        if scope.unit is None:
            short = shortlist(scope.source, scope.units, request.draft)
            return locate_messages(scope.source, short, request.draft)[:-1]
        settings = self._connection.settings
        recalled = memory_for(settings, folder, settings.model).recall(request.draft, [path])
        source, language, unit = scope.source, scope.language, scope.unit
        return first_messages(UnitTask(source, language, scope.units, unit, request.draft, recalled=recalled))
