"""What a tuning in the background says to the server that started it: one JSON object a line on its stdout.

Owns the shape. Does not own the process (`tuning.background`) or when it runs (`server.tuning`).
"""

from typing import Literal

import msgspec

MODULE = "vivace.engine.tuning.background"  # runs in a process of its own


class TuningReport(msgspec.Struct, frozen=True):
    """How far it is, or, as the last line, how it ended."""

    state: Literal["running", "done", "postponed", "unsuited", "failed"]
    step: int = 0
    steps: int = 0
    text: str = ""  # what was chosen and why, or why not
    is_new: bool = False  # measured by this process, not known before
