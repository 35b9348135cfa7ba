"""Unexpected exceptions: log them with their traceback, and answer the turn.

A fault in one turn's work ends that turn; a fault of the runner or of the engine itself ends the engine. Owns
how a fault is logged and answered. Does not own which of the two it is (`loop/stepper`, `loop/engine`).
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from vivace.engine.wire.frames import Failed
from vivace.errors import TurnFault, VivaceError

# Every other exception may be a turn's own. Not all are an `Exception`: a panic in Rust (llguidance) is not.
ENDING = (KeyboardInterrupt, SystemExit)


def failure(turn: str, error: BaseException) -> Failed:
    """Return the frame that ends `turn` by `error`. Log the error unless it is a refusal of ours."""
    if not isinstance(error, VivaceError):
        log_fault("The engine could not do a turn", error)
        error = TurnFault("The engine met a fault of its own in this turn.", "See the server's log.")
    return Failed(turn, error.code, error.message)


def log_fault(what: str, error: BaseException) -> None:
    print(f"{what}:", *traceback.format_exception(error), file=sys.stderr, sep="\n", flush=True)


@contextmanager
def only_logged(what: str) -> Iterator[None]:
    """Log exceptions of the block and continue behind it."""
    try:
        yield
    except ENDING:
        raise
    except BaseException as error:  # noqa: BLE001 - the boundary of what may fail without harm
        log_fault(what, error)
