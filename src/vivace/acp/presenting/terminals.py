"""Commands in a terminal of the editor's, where its user sees them.

Owns one command from its start to its end: whatever happens, the program is ended and the terminal given
back. Only commands that a person let out of the sandbox come here. Does not own the permission (`decision`).
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vivace.acp.link import FAULTS, SessionLink
from vivace.agent.sandbox.run import Limits, Outcome, StoppedBy
from vivace.errors import SandboxUnavailable
from vivace.redaction import without_secrets

ANSWER_S = 30.0  # for the client to open a terminal, or to say what it shows


async def run_in_terminal(
    link: SessionLink,
    command: Sequence[str],
    folder: Path,
    limits: Limits,
    on_opened: Callable[[str], None],
) -> Outcome:
    """Run a command. `on_opened` is told the terminal's id. Raise SandboxUnavailable if there is none."""
    began_s, client, session = time.monotonic(), link.client, link.session_id
    kept = [f"{name}={value}" for name, value in without_secrets(os.environ).items()]
    try:
        async with asyncio.timeout(ANSWER_S):
            opened = await client.create_terminal(
                session_id=session,
                command="env",
                args=["-i", *kept, *command],
                cwd=str(folder),
                output_byte_limit=limits.output_bytes,
            )
    except FAULTS as error:
        raise SandboxUnavailable(f"The editor opened no terminal: {error}.", "Nothing was run.") from error
    terminal, stopped_by = opened.terminal_id, ""
    on_opened(terminal)
    try:
        try:
            async with asyncio.timeout(limits.seconds):
                await client.wait_for_terminal_exit(session_id=session, terminal_id=terminal)
        except TimeoutError:
            stopped_by = "time"
            await client.kill_terminal(session_id=session, terminal_id=terminal)
        async with asyncio.timeout(ANSWER_S):
            shown = await client.terminal_output(session_id=session, terminal_id=terminal)
    except FAULTS as error:
        raise SandboxUnavailable(f"The editor lost the terminal: {error}.") from error
    finally:
        with contextlib.suppress(*FAULTS):  # releasing it also ends what still runs in it
            await asyncio.shield(client.release_terminal(session_id=session, terminal_id=terminal))
    status = shown.exit_status
    code = status.exit_code if status and status.exit_code is not None else 1
    ended: StoppedBy = "time" if stopped_by else ""
    return Outcome(code, shown.output.encode(), ended, time.monotonic() - began_s)
