"""A turn that another engine began: grammar, penalties and stop strings go on where that one was."""

from collections.abc import Iterator

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import endless
from vivace.engine.wire.frames import Generate, Grammar, Open, Sampling

LOG = [3, 1, 4, 1, 5]
COUNT = 24


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(HashRunner(400, 64, endless))
    yield desk
    desk.engine.close()


WORKS = {
    "grammar": Generate("s", "t", [7, 7], grammar=Grammar("regex", "(AB|BCA)+X"), max_tokens=COUNT),
    "penalties": Generate(
        "s",
        "t",
        [7, 7],
        sampling=Sampling(temperature=0.9, seed=5, presence_penalty=1.5, frequency_penalty=1.0),
        max_tokens=COUNT,
    ),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
@pytest.mark.parametrize("said", [1, 7, COUNT - 1])
def test_the_rest_is_as_it_would_have_been(desk: Desk, work: Generate, said: int) -> None:
    """The new engine is given the log with what was said; what it adds is the rest of the same answer."""
    desk.run(Open("s", list(LOG)), work)
    whole = desk.tokens("t")
    assert len(whole) == COUNT
    again = Generate(
        "r",
        "u",
        [*work.tokens, *whole[:said]],
        sampling=work.sampling,
        grammar=work.grammar,
        max_tokens=COUNT - said,
        prior_output_tokens=said,
    )
    desk.run(Open("r", list(LOG)), again)
    assert desk.tokens("u") == whole[said:]


def test_a_stop_string_may_have_begun_before(desk: Desk) -> None:
    """Its first half was said to the former engine, its second half completes it here."""
    desk.run(Open("s", list(LOG)), Generate("s", "t", [7], max_tokens=20))
    whole = desk.tokens("t")
    pieces = [desk.engine._runner.token_bytes(token).decode() for token in whole]
    stop = "".join(pieces[8:11])
    first = "".join(pieces).index(stop)
    assert first >= 0
    again = Generate("r", "u", [7, *whole[:9]], max_tokens=11, stop=[stop], prior_output_tokens=9)
    desk.run(Open("r", list(LOG)), again)
    assert desk.finished("u").reason == "stop"
    assert len(desk.tokens("u")) == 2


def test_no_more_can_have_been_said_than_there_is(desk: Desk) -> None:
    """A count beyond the log is refused."""
    desk.run(Open("s", list(LOG)), Generate("s", "t", [7], prior_output_tokens=7))
    assert "prior_output_tokens" in desk.failed("t").message
