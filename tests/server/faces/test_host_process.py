"""The face host as a child of the server."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from vivace.config import Settings
from vivace.server.faces.host_process import HostProcess


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="Needs waitid, which macOS has not.")
async def test_a_host_that_has_just_died_is_started_again(tmp_path: Path) -> None:
    """Whoever comes before its end was noticed finds a new one, and is not told that it did not start."""
    settings = Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state")
    settings.run_dir.mkdir(parents=True)
    host = HostProcess(settings)
    _, first = await host.connect()
    process = host._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # Python 3.11 waits for it in a thread of its own
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
    # It is dead, and the event loop has not run since.
    assert process.returncode is None
    _, second = await host.connect()
    assert host._process is not process
    for writer in (first, second):
        writer.close()
    await host.close()
