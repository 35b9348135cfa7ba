"""The requests of a conversation: what is sent for a message, behind which response, with what beside it.

Owns the bodies: the message with its code and memory, the turns that a new log is told again, and what would
be sent for a draft. Does not own when they are sent, nor what comes of them (`turn_work`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.context import Addition, NextRequest
from vivace.agent.conversation.message.intent import intent_by_words
from vivace.agent.conversation.message.mentions import target_of
from vivace.agent.conversation.message.prompt import (
    Asked,
    latest_turns,
    next_input,
    previous_response,
    told_memory,
)
from vivace.agent.conversation.message.relevant_code import find_code
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.turns import compaction
from vivace.agent.conversation.turns.editing import draft_messages, unnamed_draft_messages
from vivace.agent.edits.apply.files import Files
from vivace.agent.edits.places.index import FileIndex, index_file
from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.agent.memory.opening import memory_for
from vivace.agent.memory.recall import NOTHING, Memory
from vivace.agent.prompting import Message

MAX_ANSWER_TOKENS = 2048


class TurnRequests:
    def __init__(self, history: History, connection: Connection, files: Files) -> None:
        self._history = history
        self._connection = connection
        self._files = files
        self.effort: Effort = DEFAULT_EFFORT
        self.index = FileIndex(self.folder, index_file(connection.settings.cache_dir, self.folder))

    @property
    def folder(self) -> Path:
        """Return where the conversation takes place."""
        return Path(self._history.folder)

    @property
    def memory(self) -> Memory:
        """Return where instruction files and notes are found, with the room that the model has for them."""
        return memory_for(self._connection.settings, self.folder, self._history.model)

    async def asked(self, text: str, mentions: tuple[str, ...]) -> Asked:
        """Return the message with what it is about: where something is mentioned, no other code is read."""
        code = () if mentions else await asyncio.to_thread(find_code, self._history, text, self._files)
        found = [self.folder / piece.path for piece in code]
        await self._files.refresh(found)
        paths = [*self.paths(mentions), *found]
        return Asked(text, mentions, code, await asyncio.to_thread(self.memory.recall, text, paths))

    def paths(self, mentions: tuple[str, ...]) -> list[Path]:
        """Return the files that are mentioned."""
        return [target_of(mention, self.folder).path for mention in mentions]

    def untold(self, asked: Asked, retold: Sequence[Turn] | None) -> Asked:
        """Return the message with what the log does not have yet of files and notes."""
        told = told_memory(self._history, is_new=retold is not None)
        return replace(asked, memory=asked.memory.untold(told))

    async def next_request(self, text: str, mentions: tuple[str, ...]) -> NextRequest:
        """Return what would be sent if this were asked now."""
        asked = await self.asked(text, mentions)
        is_new = not previous_response(self._history)
        retold = await self.retold_turns(text) if is_new else None
        without_memory = self.body(replace(asked, memory=NOTHING), retold)
        alone = self.body(Asked(text, mentions), retold)
        body = self.body(asked, retold)
        additions = []
        if asked.code:
            labels = ", ".join(piece.label for piece in asked.code)
            additions.append(Addition("code", labels, without_memory))
        if used := self.untold(asked, retold).memory:
            additions.append(Addition("memory", used.used().names, body))
        return NextRequest(body, alone, tuple(additions))

    async def draft_request(self, text: str, mentions: tuple[str, ...]) -> dict[str, Any]:
        """Return the body of what is read first if this draft is sent."""
        is_edit = intent_by_words(text) == "edit"
        if is_edit and (items := await asyncio.to_thread(self._edit_messages, text, mentions)):
            return {"model": self._history.model, "input": items, "temperature": 0, "store": False}
        return (await self.next_request(text, mentions)).body

    def _edit_messages(self, text: str, mentions: tuple[str, ...]) -> list[Message]:
        if mentions:
            return draft_messages(self.folder, text, mentions[0], self.memory, self._files)
        return unnamed_draft_messages(self._history, text, self.memory, self._files, self.index)

    def body(self, asked: Asked, retold: Sequence[Turn] | None = None) -> dict[str, Any]:
        """Return the body of the next answer: what is new behind the last response.

        `retold`: a new log that begins with these turns.
        """
        previous = previous_response(self._history) if retold is None else ""
        body: dict[str, Any] = {
            "model": self._history.model,
            "input": next_input(self._history, self.untold(asked, retold), retold, self._files),
            "temperature": 0,
            "max_output_tokens": MAX_ANSWER_TOKENS,
        }
        if self._connection.tier == "background":
            body["service_tier"] = "flex"
        if self.effort != DEFAULT_EFFORT:  # or else the model thinks as it was made to
            body["reasoning"] = {"effort": self.effort}
        return body | {"previous_response_id": previous} if previous else body

    async def retold_turns(self, content: str) -> list[Turn]:
        """Return the latest turns that fit into the window with this content, as far as it is known."""
        window = await self._connection.window_tokens(self._history.model)
        share = int(compaction.WINDOW_SHARE * window * compaction.CHARS_PER_TOKEN)
        return latest_turns(self._history, max(0, share - len(content)) if window else None)
