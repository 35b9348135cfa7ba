"""A turn that only prefills tokens: a warm-up, or text that is still being typed."""

from vivace.engine.kv.session import Session
from vivace.engine.runners.base import Logits, Span
from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import Append


class AppendTurn(Turn):
    needs_row = False
    tells_reading = False

    def __init__(self, work: Append, session: Session) -> None:
        super().__init__(work, session)
        self.is_provisional = work.is_provisional
        self.is_realtime = self.is_realtime and not work.is_provisional

    def spans(self, limit: int) -> list[Span]:
        session = self.session
        chunk = session.log[session.kv : min(session.kv + limit, session.next_stop(), self._end)]
        return [Span(session.seq, session.kv, chunk)] if chunk else []

    def apply_logits(self, rows: Logits) -> str:
        assert not len(rows)
        return "" if self.session.kv < self._end else "appended"

    @property
    def _end(self) -> int:
        """Return how far the log is read: but for its last token where the KV cannot be cut at all.

        The next turn may need that token's logits, and can only get them by reading it.
        """
        log = self.session.log
        return len(log) - 1 if self.session.cannot_cut and log else len(log)
