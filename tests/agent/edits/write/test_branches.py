"""Other answers than the first: where it is turned, and what comes of it with a real model."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.scope import read_scope
from vivace.agent.edits.write.branches import find_branches, write_others
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.agent.model import Model, WrittenToken
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.config import Settings

token = st.builds(
    WrittenToken,
    st.text(max_size=4),
    st.floats(-20, 0),
    st.lists(st.tuples(st.text(max_size=4), st.floats(-20, 0)), max_size=4).map(tuple),
)


@pytest.mark.unit
def test_the_least_sure_place_is_turned_first() -> None:
    """The alternative that lost by least comes first, behind all that was said before it."""
    tokens = [
        WrittenToken("return", -0.1, ((" if", -3.0),)),
        WrittenToken(" a", -0.2),
        WrittenToken(" -", -0.6, ((" +", -0.8), (" *", -5.0))),
        WrittenToken(" b", -0.1, ((" c", -2.5),)),
    ]
    first, second, *_ = find_branches(tokens, 3)
    assert (first.text, first.rest, first.tokens) == ("return a +", " b", 3)
    assert first.nats == pytest.approx(-0.1 - 0.2 - 0.8)
    assert second.text == "return a - c"


@pytest.mark.unit
@given(st.lists(token, max_size=30), st.integers(0, 12))
def test_every_branch_begins_like_the_answer_and_then_leaves_it(
    tokens: list[WrittenToken], count: int
) -> None:
    """Whatever the tokens, a branch is a beginning of the answer and one of the alternatives there."""
    found = find_branches(tokens, count)
    assert len(found) <= count
    for branch in found:
        before = "".join(each.text for each in tokens[: branch.tokens - 1])
        others = [text for text, _ in tokens[branch.tokens - 1].others]
        assert branch.text in [before + other for other in others]
        assert branch.text + branch.rest != ""


def test_others_differ_from_the_first_and_are_less_likely_where_they_turn(
    smol_served: Settings, smol_address: ServerAddress, tmp_path: Path
) -> None:
    """With a real model: the first answer comes back with its likelihood, and no other one is the same."""
    file = tmp_path / "sums.py"
    file.write_text("def add(a, b):\n    return a - b\n")
    scope = read_scope(parse_target(f"{file}:add"), to_write=False)
    assert scope.unit is not None
    request = rewrite_request(scope.source, scope.units, scope.unit, "Fix the bug in add.")

    async def write() -> list[str]:
        async with ResponsesClient(smol_address) as client:
            model = Model(client, smol_served.model)
            parts = [
                part
                async for part in model.write(
                    request.messages, max_tokens=request.max_tokens, stop=request.stop
                )
            ]
            answers = await write_others(model, request, "".join(parts), 2)
            assert answers[0].nats_per_token < 0
            return [each.text for each in answers]

    first, *others = asyncio.run(write())
    assert others
    assert first not in others
