"""What faces for tests share: they keep what they are shown, and can be waited on."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

HANG_S = 60.0
S = TypeVar("S")


class KeepingFace:
    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._changed = asyncio.Event()

    def show(self, shown: Any) -> None:
        self.kept.append(shown)
        self._changed.set()

    def seen(self, kind: type[S]) -> list[S]:
        return [each for each in self.kept if isinstance(each, kind)]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()
