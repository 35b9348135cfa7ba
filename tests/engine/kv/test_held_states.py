"""States that a pass holds, and what becomes of them when it does not end as it should."""

import pytest

from tests.engine.hashing import HashRunner
from vivace.engine.kv.sessions import Sessions
from vivace.engine.runners.base import KVFull, Span


def test_a_pass_without_room_holds_nothing_on() -> None:
    """The states before it take no cells any more, and no sequence that scores write into."""
    runner = HashRunner(context_tokens=40, memory="checkpoints")
    sessions = Sessions(runner)
    session = sessions.open("s", list(range(50)))
    sessions.assign_sequence(session, None)
    sessions.forward([session], [Span(session.seq, 0, session.log[:30])])
    session.kv = 30
    with pytest.raises(KVFull):
        sessions.forward([session], [Span(session.seq, 30, session.log[30:])], lambda: False)
    assert not any(runner.kv.get(seq) for seq in sessions.scratch)
    assert sessions.checkpoints.bring_back(session) == 0
