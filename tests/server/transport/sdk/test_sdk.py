"""OpenAI's own SDK, unchanged, against a real model."""

from collections.abc import AsyncIterator

import pydantic
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

from vivace.client.warm import ServerAddress

QUESTION = "Name three colours."


class Person(pydantic.BaseModel):
    name: str
    age: int
    likes: list[str] = pydantic.Field(max_length=3)


@pytest.fixture
async def sdk(smol_address: ServerAddress) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=smol_address.url, api_key=smol_address.token, max_retries=0) as client:
        yield client


@pytest.fixture
def model(smol_address: ServerAddress) -> str:
    with OpenAI(base_url=smol_address.url, api_key=smol_address.token) as client:
        return client.models.list().data[0].id


def test_sync_answer(smol_address: ServerAddress, model: str) -> None:
    """The plain call gives a whole response."""
    with OpenAI(base_url=smol_address.url, api_key=smol_address.token, max_retries=0) as client:
        response = client.responses.create(model=model, input=QUESTION, max_output_tokens=3)
    assert response.output_text
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage
    assert response.usage.output_tokens == 3


async def test_stream_and_answer_say_the_same(sdk: AsyncOpenAI, model: str) -> None:
    """Deltas add up to the text of the answer that was not streamed."""
    whole = await sdk.responses.create(model=model, input=QUESTION, max_output_tokens=16)
    stream = await sdk.responses.create(model=model, input=QUESTION, max_output_tokens=16, stream=True)
    events = [event async for event in stream]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_stream_helper_parses_every_event(sdk: AsyncOpenAI, model: str) -> None:
    """The SDK's own accumulator follows our events to the final response."""
    async with sdk.responses.stream(model=model, input=QUESTION, max_output_tokens=3) as stream:
        kinds = [event.type async for event in stream]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.incomplete"


async def test_websocket_of_the_sdk(sdk: AsyncOpenAI, model: str) -> None:
    """`responses.connect()`: two turns on one socket, the second continuing the first."""
    async with sdk.responses.connect() as connection:
        ids: list[str] = []
        for words in (QUESTION, "And a fourth?"):
            previous = {"previous_response_id": ids[-1]} if ids else {}
            await connection.response.create(model=model, input=words, max_output_tokens=8, **previous)  # type: ignore[arg-type]
            async for event in connection:
                if event.type in ("response.completed", "response.incomplete"):
                    ids.append(event.response.id)
                    break
        assert event.response.previous_response_id == ids[0]
        assert event.response.usage.input_tokens_details.cached_tokens > 0


def test_structured_output(smol_address: ServerAddress, model: str) -> None:
    """`responses.parse` gives an object of the asked type, however small the model: a grammar sees to it."""
    with OpenAI(base_url=smol_address.url, api_key=smol_address.token, max_retries=0) as client:
        response = client.responses.parse(
            model=model, input="Ada is 36. She likes tea.", text_format=Person, max_output_tokens=200
        )
    assert isinstance(response.output_parsed, Person)
    assert Person.model_validate_json(response.output_text) == response.output_parsed


async def test_structured_output_streams(sdk: AsyncOpenAI, model: str) -> None:
    """The same as it comes: deltas are the JSON text, the last event has the object."""
    async with sdk.responses.stream(
        model=model, input="Ada is 36. She likes tea.", text_format=Person, max_output_tokens=200
    ) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert isinstance(response.output_parsed, Person)
    assert "".join(deltas) == response.output_text


def test_structured_chat_completion(smol_address: ServerAddress, model: str) -> None:
    """Older clients get the same through chat completions."""
    with OpenAI(base_url=smol_address.url, api_key=smol_address.token, max_retries=0) as client:
        completion = client.chat.completions.parse(
            model=model,
            messages=[{"role": "user", "content": "Ada is 36. She likes tea."}],
            response_format=Person,
            max_completion_tokens=200,
        )
    assert isinstance(completion.choices[0].message.parsed, Person)
    assert completion.usage
    assert completion.usage.completion_tokens > 5


async def test_errors_are_the_sdks(sdk: AsyncOpenAI, model: str) -> None:
    """An error body becomes the SDK's typed error, with code and param."""
    with pytest.raises(BadRequestError) as wrong:
        await sdk.responses.create(model=model, input="hi", previous_response_id="resp_none")
    assert wrong.value.code == "previous_response_not_found"
    assert wrong.value.param == "previous_response_id"
    with pytest.raises(NotFoundError) as caught:
        await sdk.responses.create(model="gpt-oss", input="hi")
    assert caught.value.code == "model_not_found"
