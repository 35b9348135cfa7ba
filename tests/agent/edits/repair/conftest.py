"""A file, a journal and a scripted model on a real server, for edits that do not go well at first."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.edits.test_flow import HANG_S, Recorder
from tests.server.serving import script
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.repair.user_tests import AllowedTests
from vivace.agent.edits.scope import read_scope
from vivace.agent.effort import Effort
from vivace.agent.model import Model
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress


@dataclass
class Bench:
    file: Path
    journal: Journal
    model: Model
    shown: Recorder

    async def edit(self, instruction: str, effort: Effort, *, test_command: str = "") -> object:
        scope = read_scope(parse_target(f"{self.file}:double"), to_write=True)
        tests = AllowedTests(test_command, self.file.parent) if test_command else None
        task = EditTask((scope,), instruction, "always", effort, tests)
        async with asyncio.timeout(HANG_S):
            return await run_edit(task, self.model, self.shown, self.journal)


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(address) as client:
        yield client


@pytest.fixture
def bench(client: ResponsesClient, tmp_path: Path) -> Callable[..., Bench]:
    """Return a bench with this file, whose model answers as told, and otherwise when it is told a fault."""

    def bench(old: str, first: str, again: str = "") -> Bench:
        folder = tmp_path / "project"
        folder.mkdir()
        file = folder / "app.py"
        file.write_text(old)
        fenced = {"Write the whole piece again": again or first, "": first}
        replies = {key: f"```python\n{text}```" for key, text in fenced.items()}
        model = script(tmp_path, replies=replies, context_tokens=20000)
        return Bench(file, Journal(tmp_path / "undo"), Model(client, model), Recorder())

    return bench
