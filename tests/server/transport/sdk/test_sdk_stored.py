"""Stored and background responses through OpenAI's SDK: found, listed, resumed, cancelled, deleted."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response

from tests.server.serving import LONG, script
from vivace.client.warm import ServerAddress


@pytest.fixture
def sdk(address: ServerAddress) -> Iterator[OpenAI]:
    with OpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_sdk(address: ServerAddress) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client:
        yield client


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A model that takes its time."""
    return script(tmp_path, replies={"": LONG}, step_ms=20)


def test_a_response_is_found_and_deleted(sdk: OpenAI) -> None:
    """By its id, the same in every field; afterwards the SDK's own error says that it is gone."""
    made = sdk.responses.create(input="hi", metadata={"who": "me"})
    assert sdk.responses.retrieve(made.id) == made
    sdk.responses.delete(made.id)
    with pytest.raises(NotFoundError) as caught:
        sdk.responses.retrieve(made.id)
    assert caught.value.code == "response_not_found"


def test_input_items_page_by_page(sdk: OpenAI) -> None:
    """The SDK's iterator walks through all pages by itself, oldest first if asked so."""
    previous: dict[str, Any] = {}
    for words in ("one", "two", "three"):
        made = sdk.responses.create(input=words, **previous)
        previous = {"previous_response_id": made.id}
    listed = sdk.responses.input_items.list(made.id, order="asc", limit=2)
    texts = [item.content[0].text for item in listed]
    assert texts == ["one", "Hello there.", "two", "Hello there.", "three"]
    newest = sdk.responses.input_items.list(made.id)
    assert [item.content[0].text for item in newest] == texts[::-1]


async def test_a_background_response_is_polled(async_sdk: AsyncOpenAI) -> None:
    """It is there at once, and whole when it is done."""
    made = await async_sdk.responses.create(input="long", background=True)
    assert made.status in ("queued", "in_progress")
    while made.status != "completed":
        made = await async_sdk.responses.retrieve(made.id)
    assert made.output_text == LONG


def test_a_background_stream_is_resumed(sdk: OpenAI, slow: str) -> None:
    """A client that lost its connection names the last number it saw, and misses nothing."""
    stream = sdk.responses.create(model=slow, input="go", background=True, stream=True, max_output_tokens=60)
    seen = []
    for event in stream:
        seen.append(event)
        if len(seen) == 8:
            break
    stream.close()
    assert seen[0].type == "response.created"
    made = seen[0].response
    rest = sdk.responses.retrieve(made.id, stream=True, starting_after=seen[-1].sequence_number)
    seen += rest
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].type == "response.incomplete"
    said = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert said == seen[-1].response.output_text == LONG[:60]


async def test_the_stream_helper_resumes(async_sdk: AsyncOpenAI) -> None:
    """`responses.stream(response_id=…)` goes on from a background response, also when it is over."""
    async with async_sdk.responses.stream(input="hi", background=True, model="") as stream:
        made = await stream.get_final_response()
    async with async_sdk.responses.stream(response_id=made.id, starting_after=2) as stream:
        numbers = [event.sequence_number async for event in stream]
        again = await stream.get_final_response()
    assert numbers[0] == 3
    assert again.output_text == made.output_text == "Hello there."


def test_a_background_response_is_cancelled(sdk: OpenAI, slow: str) -> None:
    """It ends as cancelled, with what it has said, and stays so."""
    made = sdk.responses.create(model=slow, input="go", background=True, stream=True)
    for event in made:
        if event.type == "response.output_text.delta":
            break
        if event.type == "response.created":
            response_id = event.response.id
    cancelled = sdk.responses.cancel(response_id)
    assert cancelled.status == "cancelled"
    assert LONG.startswith(cancelled.output_text)
    assert sdk.responses.retrieve(response_id).status == "cancelled"
    assert sdk.responses.cancel(response_id).status == "cancelled", "twice is as good as once"


async def test_leaving_a_stream_ends_its_response(async_sdk: AsyncOpenAI, slow: str) -> None:
    """A response in the foreground ends with its connection, and keeps what was said until then."""
    stream = await async_sdk.responses.create(model=slow, input="go", stream=True)
    async for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    found: Response | None = None
    while found is None:
        try:
            found = await async_sdk.responses.retrieve(response_id)
        except NotFoundError:  # it is stored when it is over
            continue
    assert found.status == "incomplete"


def test_mistakes_become_the_sdks_errors(sdk: OpenAI, address: ServerAddress) -> None:
    """Each kind has its class, its code and the field that is wrong."""
    with pytest.raises(BadRequestError) as wrong:
        sdk.responses.create(input="hi", temperature=7)
    assert (wrong.value.code, wrong.value.param) == ("invalid_value", "temperature")
    image: Any = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:", "detail": "low"}]}
    ]
    with pytest.raises(BadRequestError) as pictured:
        sdk.responses.create(input=image)
    assert pictured.value.param == "input[0].content[0].type"
    with pytest.raises(BadRequestError) as long:
        sdk.responses.create(input="x" * 10_000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(NotFoundError):
        sdk.models.retrieve("gpt-oss")
    stranger = OpenAI(base_url=address.url, api_key="nobody", max_retries=0)
    with stranger, pytest.raises(AuthenticationError) as caught:
        stranger.models.list()
    assert caught.value.code == "invalid_api_key"


def test_a_failure_in_a_stream_is_an_event(sdk: OpenAI) -> None:
    """The stream was begun: the failure is its last event, with its code."""
    events = list(sdk.responses.create(input="x" * 10_000, stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error
    assert events[-1].response.error.code == "context_length_exceeded"


def test_many_clients_at_once(sdk: OpenAI) -> None:
    """Streams that overlap do not mix."""
    streams = [sdk.responses.create(input=words, stream=True) for words in ("long", "hi", "emoji")]
    texts = ["", "", ""]
    for index, stream in reversed(list(enumerate(streams))):
        for event in stream:
            if event.type == "response.output_text.delta":
                texts[index] += event.delta
    assert texts == [LONG, "Hello there.", "aé€😀z"]
