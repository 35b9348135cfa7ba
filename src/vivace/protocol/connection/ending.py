"""Why a connection takes no more requests: it is too old, or the server leaves.

Owns the words and the codes. Does not own what is done then (`connection`).
"""

import msgspec

from vivace.protocol.shapes.refusal import Refusal


class Ending(msgspec.Struct, frozen=True):
    """The connection takes no more requests, and closes when nothing runs any more."""

    refusal: Refusal
    close_code: int
    is_leaving: bool  # the server goes: nothing new begins at all


EXPIRED = Ending(
    Refusal(
        "This connection is 60 minutes old and takes no more requests.",
        "Open a new one.",
        code="websocket_connection_limit_reached",
    ),
    close_code=1000,
    is_leaving=False,
)
LEAVING = Ending(
    Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503),
    close_code=1012,
    is_leaving=True,
)
