"""A device that runs out of memory in one turn ends that turn and no other."""

from collections.abc import Sequence

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from vivace.engine.runners.base import Logits, OutOfMemory, ShouldStop, Span
from vivace.engine.wire.frames import Generate, Open


class SmallDevice(HashRunner):
    """Has no memory for a pass with the token 13 in it."""

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        if any(13 in span.tokens for span in spans):
            raise OutOfMemory
        return super().forward(spans, should_stop)


def test_one_turn_ends_and_the_other_goes_on() -> None:
    """Both are in one pass when it fails: the one that cannot be done says so, the other says all it has."""
    desk = Desk(SmallDevice())
    desk.give(Open("a"), Open("b"))
    desk.run(Generate("a", "bad", [1, 13], max_tokens=5), Generate("b", "good", [1, 2], max_tokens=5))
    assert desk.failed("bad").code == "out_of_memory"
    alone = Desk(HashRunner())
    alone.run(Open("b"), Generate("b", "good", [1, 2], max_tokens=5))
    assert desk.tokens("good") == alone.tokens("good")
    desk.run(Generate("b", "again", [3], max_tokens=2))
    assert len(desk.tokens("again")) == 2
