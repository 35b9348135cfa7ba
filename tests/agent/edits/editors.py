"""An editor for tests: buffers, which it may save when it is told to write, and which may fail."""

import asyncio
from pathlib import Path

from vivace.errors import WriteProblem


class FakeEditor:
    def __init__(self, buffers: dict[Path, str] | None = None, *, saves: bool = True) -> None:
        self.buffers = buffers or {}
        self.writes: list[Path] = []
        self.fails_at = -1  # the write that fails: 0 for the first
        self.fails_after_writing = False
        self.held: asyncio.Event | None = None  # a write waits for it
        self.began = asyncio.Event()  # a write has begun
        self._saves = saves

    async def read(self, path: Path) -> str | None:
        await asyncio.sleep(0)
        return self.buffers.get(path)

    async def write(self, path: Path, text: str) -> None:
        number = len(self.writes)
        self.writes.append(path)
        self.began.set()
        if self.held is not None:
            await self.held.wait()
        if number == self.fails_at and not self.fails_after_writing:
            raise WriteProblem(f"{path} is locked by the editor.")
        self.buffers[path] = text
        if self._saves:
            await asyncio.to_thread(path.write_bytes, text.encode())
        if number == self.fails_at:
            raise WriteProblem(f"{path} is locked by the editor.")
