"""A model that was interrupted is told so: by a steer, by Codex's interrupt, by the whole history after Esc.

The script answers "Told." only where the words of the template are in the log.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.server.inside import served_here
from tests.server.serving import script
from tests.server.turns.test_steering import ENDS, Socket
from vivace.client.warm import ServerAddress
from vivace.config import Settings

WORDS = '(I had asked: "go" Answer that again, with this change:)'
STORY = "x" * 500


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return script(tmp_path, replies={WORDS: "Told.", "in French": "Not told.", "": STORY}, step_ms=5)


@pytest.fixture
async def socket(address: ServerAddress) -> AsyncIterator[Socket]:
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect(address.socket_url, additional_headers=headers, proxy=None) as connection:
        yield Socket(connection)


def text_of(ended: dict[str, Any]) -> str:
    return str(ended["response"]["output"][0]["content"][0]["text"])


def prefilled_again(before: dict[str, Any], after: dict[str, Any]) -> int:
    cached = after["response"]["usage"]["input_tokens_details"]["cached_tokens"]
    return int(before["response"]["usage"]["total_tokens"]) - 1 - int(cached)


async def test_a_steer_is_told_as_an_interruption(socket: Socket, slow: str) -> None:
    """The model sees the words, the client does not, and what was said is not prefilled again."""
    await socket.say("response.create", model=slow, input="go")
    first = await socket.until_said(5)
    await socket.say("response.steer", previous_response_id=first, input="in French")
    before, after = await socket.until_type(*ENDS), await socket.until_type(*ENDS)
    assert text_of(after) == "Told."
    assert set(text_of(before)) == {"x"}
    assert not any(WORDS in str(event) for event in socket.heard)
    assert prefilled_again(before, after) <= 0


@pytest.mark.parametrize("is_stored", [True, False])
async def test_codex_interrupt_is_told_to_who_goes_on_from_there(
    socket: Socket, slow: str, is_stored: bool
) -> None:
    """`response.interrupt`, then a create with the interrupted response's id."""
    await socket.say("response.create", model=slow, input="go", store=is_stored)
    first = await socket.until_said(5)
    await socket.say("response.interrupt", response_id=first)
    before = await socket.until_type(*ENDS)
    going_on = {"model": slow, "previous_response_id": first, "store": is_stored}
    await socket.say("response.create", input="in French", **going_on)
    after = await socket.until_type(*ENDS)
    assert text_of(after) == "Told."
    assert prefilled_again(before, after) <= 0


async def test_a_history_with_an_answer_that_was_cut_off_is_told(socket: Socket, slow: str) -> None:
    """All items again, the answer as it was given (incomplete): only what is new is prefilled."""
    ask = {"type": "message", "role": "user", "content": "go"}
    await socket.say("response.create", model=slow, input=[ask], store=False)
    first = await socket.until_said(5)
    await socket.say("response.cancel", response_id=first)
    before = await socket.until_type(*ENDS)
    again = {"type": "message", "role": "user", "content": "in French"}
    items = [ask, *before["response"]["output"], again]
    await socket.say("response.create", model=slow, input=items, store=False)
    after = await socket.until_type(*ENDS)
    assert text_of(after) == "Told."
    assert prefilled_again(before, after) <= 0


async def test_an_answer_at_its_token_limit_was_not_interrupted(socket: Socket, slow: str) -> None:
    """Who goes on from an answer that ended at `max_output_tokens` has interrupted nobody."""
    await socket.say("response.create", model=slow, input="go", max_output_tokens=5)
    before = await socket.until_type(*ENDS)
    going_on = {"model": slow, "previous_response_id": before["response"]["id"]}
    await socket.say("response.create", input="in French", **going_on)
    assert text_of(await socket.until_type(*ENDS)) == "Not told."


async def test_typing_does_not_take_the_interruption_away(socket: Socket, slow: str) -> None:
    """A provisional prefill between the interrupt and the message changes nothing of what is told."""
    await socket.say("response.create", model=slow, input="go")
    first = await socket.until_said(5)
    await socket.say("response.interrupt", response_id=first)
    await socket.until_type(*ENDS)
    typing = {"model": slow, "previous_response_id": first, "generate": False, "is_provisional": True}
    await socket.say("response.create", input="never", **typing)
    typed = await socket.until_type(*ENDS)
    for previous in (typed["response"]["id"], first):
        await socket.say("response.create", model=slow, input="in French", previous_response_id=previous)
        assert text_of(await socket.until_type(*ENDS)) == "Told."


async def test_an_interruption_is_remembered_across_a_restart(settings: Settings, slow: str) -> None:
    """What is continued from the store is told as it would have been before."""
    settings = settings.having(model=slow, allow_scripted=True)
    async with served_here(settings) as inside:
        headers = {"Authorization": f"Bearer {inside.address.token}"}
        async with connect(inside.address.socket_url, additional_headers=headers, proxy=None) as connection:
            socket = Socket(connection)
            await socket.say("response.create", input="go")
            first = await socket.until_said(5)
            await socket.say("response.interrupt", response_id=first)
            await socket.until_type(*ENDS)
    async with served_here(settings) as inside:
        headers = {"Authorization": f"Bearer {inside.address.token}"}
        async with connect(inside.address.socket_url, additional_headers=headers, proxy=None) as connection:
            socket = Socket(connection)
            await socket.say("response.create", input="in French", previous_response_id=first)
            assert text_of(await socket.until_type(*ENDS)) == "Told."
