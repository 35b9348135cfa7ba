"""One session's calls to the client: updates, questions, files and terminals.

Owns what happens when the client answers wrongly, late or not at all: it becomes a typed error or a "no".
Does not own what is said (`presenting`), nor in which rhythm (`presenting.updates`).
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.interfaces import Client
from acp.schema import AllowedOutcome, ClientCapabilities, PermissionOption, ToolCallUpdate
from pydantic import ValidationError

from vivace.acp.requests import Requests
from vivace.errors import WriteProblem

READ_S = 10.0  # a client that takes longer for a file has none open
FAULTS = (RequestError, ConnectionError, ValidationError, TimeoutError)


class SessionLink:
    """The way to the client for one session, whose id is known once its conversation is open."""

    def __init__(self, client: Client, capabilities: ClientCapabilities, requests: Requests) -> None:
        self.client = client
        self._requests = requests
        self.session_id = ""
        files = capabilities.fs
        self.reads_files = bool(files and files.read_text_file)
        self.writes_files = bool(files and files.write_text_file)
        self.has_terminals = bool(capabilities.terminal)

    async def update(self, update: Any) -> None:
        """Tell the client. Raise ConnectionError if it is gone."""
        await self.client.session_update(session_id=self.session_id, update=update)

    async def ask(self, call: ToolCallUpdate, options: Sequence[PermissionOption]) -> str:
        """Return the id of the option that the user chose; "" if there is no answer.

        Cancelled, it takes the question back: the turn has ended, or another face has answered.
        """
        question = self.client.request_permission(
            session_id=self.session_id, tool_call=call, options=list(options)
        )
        try:
            answer = await self._requests.ask(question)
        except FAULTS:
            return ""
        known = {option.option_id for option in options}
        chosen = answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else ""
        return chosen if chosen in known else ""

    # ---- `edits.apply.files.Editor` ---------------------------------------------------------------

    async def read(self, path: Path) -> str | None:
        """Return the text of a file as the client has it; None if it has none, or does not say."""
        if not self.reads_files or not await asyncio.to_thread(path.is_file):
            return None
        try:
            async with asyncio.timeout(READ_S):
                answer = await self.client.read_text_file(session_id=self.session_id, path=str(path))
        except FAULTS:
            return None
        return answer.content

    async def write(self, path: Path, text: str) -> None:
        """Let the client write a file: it may show the change for review."""
        try:
            await self.client.write_text_file(session_id=self.session_id, path=str(path), content=text)
        except FAULTS as error:
            raise WriteProblem(
                f"The editor did not write {path}: {error}.", "It was left untouched."
            ) from error
