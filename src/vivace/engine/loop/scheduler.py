"""Who runs next. Realtime before everything else, between any two passes; fair among tenants within a tier.

Owns the waiting turns and what each tenant has been served. A turn that is not realtime (background work, and
text that is still being typed) gets one pass in twenty while realtime turns run, so that it never starves.
Among tenants the one that was served least goes first, by virtual token counters: a tenant that comes back
after a pause starts level with the others and has no old credit to spend. Does not run anything.
"""

from collections.abc import Iterator, Sequence

from vivace.engine.turns.turn import Account, Turn
from vivace.engine.wire.frames import Append, Close, Generate, Interrupt, Rewind, Score, ToEngine

REALTIME_PASSES = 19  # in a row at most, while something else waits: the rest gets 5%
OUTPUT_WEIGHT = 2.0  # a token said counts as two tokens read: about what they cost


class Scheduler:
    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._served: dict[Account, float] = {}  # in weighted tokens
        self._realtime_passes = 0  # since something else last ran
        self._tick = 0

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Turn]:
        return iter(list(self._turns))

    def add(self, turn: Turn) -> None:
        account = turn.account
        active = {each.account for each in self._turns if each.is_realtime == turn.is_realtime}
        if account not in active:
            level = min((self._served[each] for each in active), default=0.0)
            self._served[account] = max(self._served.get(account, 0.0), level)
        self._turns.append(turn)

    def remove(self, turn: Turn) -> None:
        self._turns.remove(turn)
        if not self._turns:
            self._served.clear()  # nobody waits: nobody has a claim on anybody

    @property
    def senior(self) -> Turn:
        """The turn with the strongest claim on the KV."""
        return min(self._turns, key=lambda turn: turn.claim)

    def order(self) -> list[Turn]:
        """All turns, the one whose turn it is first."""
        if len(self._turns) == 1:
            return self._turns[:]
        fair = sorted(self._turns, key=lambda turn: (self._served[turn.account], turn.served_at))
        realtime = [turn for turn in fair if turn.is_realtime]
        rest = [turn for turn in fair if not turn.is_realtime]
        if rest and self._realtime_passes >= REALTIME_PASSES:
            return rest + realtime
        return realtime + rest

    def is_contended(self, turn: Turn) -> bool:
        """Whether a realtime turn waits while this one runs."""
        return not turn.is_realtime and any(each.is_realtime for each in self._turns)

    def charge(self, turn: Turn, *, tokens_read: int = 0, tokens_said: int = 0) -> None:
        """Account for a pass that this turn had a part in. Before the turn is removed."""
        self._tick += 1
        turn.served_at = self._tick
        self._served[turn.account] += tokens_read + OUTPUT_WEIGHT * tokens_said

    def count_pass(self, lead: Turn) -> None:
        if len(self._turns) > 1 and lead.is_realtime and any(not each.is_realtime for each in self._turns):
            self._realtime_passes += 1
        else:
            self._realtime_passes = 0


def is_overtaken(running: list[Turn], frames: Sequence[ToEngine]) -> bool:
    """Whether frames that came during a pass make the pass not worth finishing."""
    ended: set[str] = set()
    is_urgent = False
    for frame in frames:
        match frame:
            case Interrupt(turn=turn):
                ended.add(turn)
            case Close(session=session) | Rewind(session=session):
                ended |= {turn.id for turn in running if turn.session.name == session}
            case (
                Generate(tier="realtime")
                | Score(tier="realtime")
                | Append(tier="realtime", is_provisional=False)
            ):
                is_urgent = True
            case _:
                pass
    return all(turn.id in ended for turn in running) or (is_urgent and not running[0].is_realtime)
