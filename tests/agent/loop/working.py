"""A face for tests, which keeps steps and answers as told; and calls as the scripted model writes them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from vivace.agent.loop.calls import Approval
from vivace.agent.loop.steps import AnyStep, ApprovalAsked, CallEnded

HANG_S = 60.0
S = TypeVar("S")


class Face:
    def __init__(self) -> None:
        self.steps: list[AnyStep] = []
        self.answers: list[Approval] = []  # taken in order; then no
        self.before_answer: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()

    def show(self, step: AnyStep) -> None:
        self.steps.append(step)
        self._changed.set()

    async def approve(self, asked: ApprovalAsked) -> Approval:
        del asked
        await asyncio.sleep(0)
        self.before_answer()
        return self.answers.pop(0) if self.answers else Approval(is_allowed=False)

    def seen(self, kind: type[S]) -> list[S]:
        return [step for step in self.steps if isinstance(step, kind)]

    @property
    def ended(self) -> list[tuple[str, str]]:
        """Return the tools that ran, in the order of their ends, each with its status."""
        return [(step.tool, step.status) for step in self.seen(CallEnded)]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def calls(*texts: str) -> str:
    return "\n".join(texts)
