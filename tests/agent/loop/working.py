"""A face for tests, which keeps steps and answers as told; and calls as the scripted model writes them."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.agent.keeping import KeepingFace
from vivace.agent.events.task import AnyStep, ApprovalAsked, CallEnded
from vivace.agent.loop.calls import Approval


class Face(KeepingFace):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Approval] = []  # taken in order; then no
        self.before_answer: Callable[[], None] = lambda: None

    @property
    def steps(self) -> list[AnyStep]:
        return self.kept

    async def approve(self, asked: ApprovalAsked) -> Approval:
        await asyncio.sleep(0)
        self.before_answer()
        answer = self.answers.pop(0) if self.answers else Approval(is_allowed=False)
        return replace(answer, digest=answer.digest or asked.digest)

    @property
    def ended(self) -> list[tuple[str, str]]:
        """Return the tools that ran, in the order of their ends, each with its status."""
        return [(step.tool, step.status) for step in self.seen(CallEnded)]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def raw_call(name: str, **arguments: Any) -> str:
    """Return a call as a model writes it that uses no escapes of JSON for letters."""
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def calls(*texts: str) -> str:
    return "\n".join(texts)
