"""Decide which turn runs next: realtime first, between any two passes; fair among tenants within a tier.

Owns the waiting turns. A turn that is not realtime (background work, and text that is still being typed) gets
one pass in 20 while realtime turns run; among tenants the one that was served least goes first (`fairness`,
which the server's queue uses too). Does not run anything.
"""

from collections.abc import Iterator, Sequence

from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import Append, Close, Generate, Interrupt, Rewind, Score, Stats, ToEngine
from vivace.fairness import FairCounters, RealtimeShare

OUTPUT_WEIGHT = 2.0  # an output token counts as 2 prompt tokens: about what they cost
UNCONTENDED_PASSES = 1 << 16  # of a turn that is alone: more than any runner begins ahead


class Scheduler:
    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._served = (FairCounters(), FairCounters())  # of tenants, in weighted tokens: by `is_realtime`
        self._share = RealtimeShare()
        self._tick = 0

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Turn]:
        return iter(list(self._turns))

    def add(self, turn: Turn) -> None:
        present = {each.tenant for each in self._turns if each.is_realtime == turn.is_realtime}
        if turn.tenant not in present:
            self._served[turn.is_realtime].join(turn.tenant, present)
        self._turns.append(turn)

    def remove(self, turn: Turn) -> None:
        self._turns.remove(turn)
        if len(self._turns) < 2:
            self._share = RealtimeShare()  # nobody waits
        if not self._turns:
            for counters in self._served:
                counters.clear()

    @property
    def senior(self) -> Turn:
        """Return the turn with the strongest claim on the KV."""
        return min(self._turns, key=lambda turn: turn.claim)

    def order(self) -> list[Turn]:
        """Return all turns, the one to run first at the front."""
        if len(self._turns) == 1:
            return self._turns[:]
        fair = sorted(
            self._turns, key=lambda turn: (self._served[turn.is_realtime][turn.tenant], turn.served_at)
        )
        realtime = [turn for turn in fair if turn.is_realtime]
        rest = [turn for turn in fair if not turn.is_realtime]
        if rest and self._share.is_other_due:
            return rest + realtime
        return realtime + rest

    def passes_in_a_row(self, turn: Turn) -> int:
        """Return how many passes the turn has from now on before another turn is due, this one included.

        One in the background: a realtime turn may arrive at any time, and waits for no more than that.
        """
        others = [each for each in self._turns if each is not turn]
        if not turn.is_realtime or any(each.is_realtime for each in others):
            return 1
        if not others:
            return UNCONTENDED_PASSES
        return max(1, self._share.realtime_left)

    def is_contended(self, turn: Turn) -> bool:
        """Return whether a realtime turn waits while this one runs."""
        return not turn.is_realtime and any(each.is_realtime for each in self._turns)

    def charge(self, turn: Turn, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Count a pass that this turn had a part in as served. Call it before the turn is removed."""
        self._tick += 1
        turn.served_at = self._tick
        self._served[turn.is_realtime].charge(turn.tenant, prompt_tokens + OUTPUT_WEIGHT * output_tokens)

    def count_pass(self, lead: Turn) -> None:
        if len(self._turns) > 1:
            is_other_waiting = any(not each.is_realtime for each in self._turns)
            self._share.count(is_realtime=lead.is_realtime, is_other_waiting=is_other_waiting)


def is_overtaken(running: list[Turn], frames: Sequence[ToEngine]) -> bool:
    """Return whether frames that arrived during a pass make it not worth finishing.

    A pass of nobody only measures: whatever is asked for comes first, except for `Stats`.
    """
    if not running:
        return not all(isinstance(frame, Stats) for frame in frames)
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
