"""Law 1 across restarts: what a stored response is continued from are its tokens, never its text."""

from pathlib import Path

from tests.server.inside import Inside, served_here
from tests.server.serving import script
from tests.server.talking import talking
from vivace.config import Settings
from vivace.server.caller import Caller

REPLY = "Fine, thanks."


async def tokens_of(inside: Inside, response_id: str) -> list[int]:
    known = await inside.library.find(response_id, Caller())
    assert known is not None
    return known.tokens()


async def test_an_empty_warm_up_is_part_of_the_log(settings: Settings, tmp_path: Path) -> None:
    """A conversation that began with one goes on from its tokens after a restart.

    The answer was cut: read anew from its text it would have an end that its tokens have not.
    """
    settings = settings.having(model=script(tmp_path, replies={"": REPLY}))
    async with served_here(settings) as inside, talking(inside.address) as talker:
        warm = await talker.complete(input=[], generate=False)
        cut = await talker.complete(input="hi", previous_response_id=warm["id"], max_output_tokens=4)
        before = await tokens_of(inside, cut["id"])
    async with served_here(settings) as inside, talking(inside.address) as talker:
        then = await talker.complete(input="go on", previous_response_id=cut["id"])
        assert then["output"][0]["content"][0]["text"] == REPLY
        assert (await tokens_of(inside, cut["id"])) == before
        assert (await tokens_of(inside, then["id"]))[: len(before)] == before


async def test_what_was_only_typed_is_no_part_of_the_log(settings: Settings, tmp_path: Path) -> None:
    """A provisional prefill leaves nothing behind it, before a restart and after it."""
    settings = settings.having(model=script(tmp_path, replies={"": REPLY}))
    async with served_here(settings) as inside, talking(inside.address) as talker:
        first = await talker.complete(input="hi", max_output_tokens=4)
        typed = await talker.complete(
            input="and the", previous_response_id=first["id"], generate=False, is_provisional=True
        )
        before = await tokens_of(inside, first["id"])
        assert (await tokens_of(inside, typed["id"])) == before
    async with served_here(settings) as inside:
        assert (await tokens_of(inside, typed["id"])) == before
