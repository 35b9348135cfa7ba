"""Which of several engines a turn goes to: a pure function of what each of them has to do.

Owns the rule. A session stays where its KV is, a fork goes to its parent, and another one to the engine with
the fewest realtime turns; among equals to the one that has its beginning, then to the one with the most free
KV. Does not know processes (`group`).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

EngineState = Literal["ready", "silent", "down"]  # silent: it lives, but owes an answer


class EngineLoad(NamedTuple):
    state: EngineState
    realtime: int = 0  # turns that run or wait there
    background: int = 0
    free_cells: int = 0  # of KV


def place(
    engines: Sequence[EngineLoad],
    *,
    home: int | None = None,
    parent: int | None = None,
    near: int | None = None,
) -> int:
    """Return the index of the engine that is to serve a session.

    `home` has its KV, `parent` that of the session it is a fork of, `near` that of one which begins alike. An
    engine that is silent for a moment keeps its sessions: reading them again elsewhere takes longer. One that
    is down loses them to the others. Sessions of one program all begin alike, with its instructions: that
    must not bring all of them to one engine while others have nothing to do.
    """
    assert engines
    for known in (home, parent):
        if known is not None and engines[known].state != "down":
            return known

    def burden(at: int) -> tuple[int, int, bool, int, int, int]:
        engine = engines[at]
        waits = _NOT_READY[engine.state]
        return waits, engine.realtime, at != near, -engine.free_cells, engine.background, at

    return min(range(len(engines)), key=burden)


_NOT_READY = {"ready": 0, "silent": 1, "down": 2}
