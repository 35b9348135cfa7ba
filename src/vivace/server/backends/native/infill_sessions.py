"""The sessions of the last completions of a model: the next one begins where one of them did.

Owns which are kept, one for each place that is typed at, which one a new prompt forks from, and what is
probably said again. A session whose place another one took is closed, not parked: nobody ever continues a
completion. Does not send frames (`loaded_model`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vivace.server.conversation.infill_text import Gap
from vivace.server.conversation.token_log import Session, Source

MOST_PLACES = 4
LEAST_SHARED_TOKENS = 16


class Asked(NamedTuple):
    """What a session was begun with."""

    gap: Gap
    prompt_tokens: int


class InfillSessions:
    def __init__(self) -> None:
        self._kept: dict[Session, Asked] = {}  # the latest last

    def gaps(self, tenant: str) -> list[Gap]:
        """Return what the tenant's kept sessions were begun with, the latest first."""
        return [asked.gap for session, asked in reversed(self._kept.items()) if session.tenant == tenant]

    def nearest(self, session: Session) -> Source | None:
        """Return the session of the same tenant that begins most like this one, if it is worth it."""
        others = [other for other in self._kept if other.tenant == session.tenant and other.open_in]
        found = [Source(other, shared_tokens(other.log, session.log)) for other in others]
        best = max(found, key=lambda source: source.length, default=None)
        return best if best and best.length >= LEAST_SHARED_TOKENS else None

    def add(self, session: Session, gap: Gap) -> None:
        """Keep the session of a prompt, from when its prompt and nothing else is in its log.

        One with next to no text takes no place: llama.vim asks for such every second.
        """
        if len(session.log) >= LEAST_SHARED_TOKENS:
            self._kept[session] = Asked(gap, len(session.log))

    def expected(self, source: Source | None, prefix: str, token_bytes: Callable[[int], bytes]) -> str:
        """Return the rest of the last suggestion if what was typed since then is how it begins, else ""."""
        asked = self._kept.get(source.session) if source else None
        if source is None or asked is None or not prefix.startswith(asked.gap.read):
            return ""
        said = b"".join(map(token_bytes, source.session.log.since(asked.prompt_tokens)))
        text, typed = said.decode("utf-8", "ignore"), prefix[len(asked.gap.read) :]
        return text[len(typed) :] if text.startswith(typed) else ""

    def outdated(self, latest: Session) -> list[Session]:
        """Return the sessions to close now that `latest` is done, and forget them."""
        if latest not in self._kept:
            return [latest]
        source = latest.source
        replaced = source.session if source and 2 * source.length >= len(source.session.log) else None
        idle = [session for session in self._kept if not session.is_busy and session is not latest]
        gone = [session for session in idle if session is replaced]
        too_many = len(self._kept) - len(gone) - MOST_PLACES
        gone += [session for session in idle if session is not replaced][: max(0, too_many)]
        for session in gone:
            del self._kept[session]
        latest.source = None  # or each would hold on to the one before
        return gone


def shared_tokens(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens both begin with; one less than all, since the last one is computed anew."""
    most = min(len(one), len(other) - 1)
    return next((at for at in range(most) if one[at] != other[at]), max(0, most))
