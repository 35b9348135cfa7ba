"""Stored responses are forgotten after `keep_days`, whatever the disk does meanwhile."""

import asyncio
import logging
from pathlib import Path

import pytest

from vivace.server import process
from vivace.server.store.problems import StoreUnavailable
from vivace.server.store.sqlite import SqliteStore


class Failing(SqliteStore):
    """A store whose disk fails for the first sweeps."""

    def __init__(self, path: Path, failures: list[Exception]) -> None:
        super().__init__(path)
        self._failures = failures
        self.swept = asyncio.Event()

    async def sweep(self, older_than: int) -> int:
        if self._failures:
            raise self._failures.pop(0)
        count = await super().sweep(older_than)
        self.swept.set()
        return count


async def test_a_disk_error_does_not_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next sweep comes at its time."""
    monkeypatch.setattr(process, "SWEEP_EVERY_S", 0.001)
    failures = [StoreUnavailable("The disk is full."), OSError("input/output error")]
    async with Failing(tmp_path / "vivace.db", failures) as store:
        with caplog.at_level(logging.WARNING):
            sweeping = asyncio.create_task(process._sweep(store, keep_days=30.0))
            await asyncio.wait_for(store.swept.wait(), 30)
        sweeping.cancel()
        await asyncio.wait([sweeping])
    assert "The disk is full." in caplog.text
    assert "input/output error" in caplog.text
