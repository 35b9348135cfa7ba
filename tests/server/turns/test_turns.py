"""What a turn can do, over the WebSocket and over HTTP, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.server.serving import fetch, send, sse_events, status_of, until
from tests.server.talking import talking
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.errors import RequestRefused
from vivace.protocol.shapes.events import Response, Waterfall


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(address) as client:
        yield client


@pytest.fixture
async def smol_client(smol_address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(smol_address) as client:
        yield client


def without_ids(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what differs between two runs of the same turn."""
    response = event.get("response", {})
    for part in (response, event.get("item", {}), *response.get("output", [])):
        part.pop("id", None)
    for name in ("created_at", "vivace", "usage"):
        response.pop(name, None)
    event.pop("item_id", None)
    return event


def comparable(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of a turn with neighbouring deltas joined: a client that is behind gets them so."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    found: list[dict[str, Any]] = []
    for event in map(without_ids, events):
        del event["sequence_number"]
        last = found[-1] if found else {}
        if "delta" in event and last.get("type") == event["type"]:
            last["delta"] += event["delta"]
            last["logprobs"] = [*last["logprobs"], *event["logprobs"]]
        else:
            found.append(event)
    return found


def times(response: Response) -> Waterfall:
    assert not isinstance(response.vivace, msgspec.UnsetType)
    return response.vivace.waterfall  # type: ignore[return-value]


async def test_socket_and_sse_tell_the_same(address: ServerAddress) -> None:
    """The same request gives the same events on both transports; ids, times and cuts of the text aside."""
    body = {"input": "hello", "metadata": {"a": "b"}, "temperature": 0.5, "seed": 3}
    async with talking(address) as talker:  # which joins nothing by itself
        await talker.complete(**body)
    over_socket = talker.heard
    over_sse = sse_events(send(address, "POST", "/v1/responses", body | {"stream": True}))
    assert comparable(over_socket) == comparable(over_sse)
    status, whole = fetch(address, "POST", "/v1/responses", body)
    assert status == 200
    assert without_ids({"response": whole}) == {"response": over_sse[-1]["response"]}


async def test_stream_headers_forbid_buffering(address: ServerAddress) -> None:
    """A proxy in between is told to hand events on at once."""
    answer = send(address, "POST", "/v1/responses", {"input": "hi", "stream": True})
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["content-type"].startswith("text/event-stream")
    sse_events(answer)


async def test_characters_of_many_tokens_arrive_whole(client: ResponsesClient) -> None:
    """With a byte per token, each delta is still whole characters."""
    deltas = [event.delta async for event in client.stream({"input": "emoji"}) if hasattr(event, "delta")]
    assert "".join(deltas) == "aé€😀z"  # half a character would be a replacement character


async def test_stop_string_cuts_the_text(client: ResponsesClient) -> None:
    """The text ends before the stop string, of which nothing is seen, and the turn is complete."""
    events = [event async for event in client.stream({"input": "hi", "stop": ["the"]})]
    assert events[-1].response.output_text == "Hello "
    assert events[-1].response.status == "completed"
    assert "t" not in "".join(event.delta for event in events if hasattr(event, "delta"))


async def test_a_turn_after_a_stop_string_is_a_new_message(smol_client: ResponsesClient) -> None:
    """Text that was cut leaves the log inside a message; the next turn closes it and goes on."""
    first = await smol_client.complete({"input": "Count from 1 to 9.", "stop": "5", "max_output_tokens": 60})
    second = await smol_client.complete(
        {"input": "Say yes.", "previous_response_id": first.id, "max_output_tokens": 6}
    )
    assert second.output_text
    assert first.usage
    assert times(second).cached_tokens == first.usage.total_tokens - 1


async def test_max_output_tokens_ends_incomplete(client: ResponsesClient) -> None:
    """A turn that ran into its limit says so."""
    response = await client.complete({"input": "hi", "max_output_tokens": 5})
    assert (response.output_text, response.status) == ("Hello", "incomplete")
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_a_continuation_prefills_only_what_is_new(smol_client: ResponsesClient) -> None:
    """All earlier tokens are in the KV, but for the very last one: it was sampled and never fed."""
    first = await smol_client.complete({"input": "My name is Ada.", "max_output_tokens": 10})
    second = await smol_client.complete(
        {"input": "What is my name?", "previous_response_id": first.id, "max_output_tokens": 10}
    )
    assert first.usage
    assert second.usage
    assert second.usage.input_tokens_details.cached_tokens == first.usage.total_tokens - 1
    assert times(second).new_tokens == second.usage.input_tokens - first.usage.total_tokens + 1


async def test_a_warm_up_pays_for_the_turn_after_it(smol_client: ResponsesClient) -> None:
    """`generate: false` makes an id and no output; continuing it prefills the new message only."""
    system = [{"role": "developer", "content": "You are a terse poet. " * 8}]
    warm = await smol_client.prefill({"input": system})
    assert warm.output == []
    assert warm.usage
    asked = await smol_client.complete(
        {"input": "A line on rain.", "previous_response_id": warm.id, "max_output_tokens": 4}
    )
    assert asked.usage
    assert asked.usage.input_tokens_details.cached_tokens == warm.usage.input_tokens
    whole = await smol_client.complete(
        {"input": [*system, {"role": "user", "content": "A line on rain."}], "max_output_tokens": 4}
    )
    assert whole.usage
    assert whole.output_text == asked.output_text
    assert whole.usage.input_tokens == asked.usage.input_tokens


async def test_history_sent_again_is_found_by_its_tokens(smol_client: ResponsesClient) -> None:
    """A client that knows no ids and sends everything again pays for the end of it only."""
    history = [{"role": "user", "content": "Tell me about the sea, in a few words. " * 6}]
    first = await smol_client.complete({"input": history, "max_output_tokens": 8})
    said = {"role": "assistant", "content": first.output_text}
    more = [*history, said, {"role": "user", "content": "More."}]
    second = await smol_client.complete({"input": more, "max_output_tokens": 4})
    assert first.usage
    assert times(second).cached_tokens >= first.usage.input_tokens


async def test_an_open_message_is_continued(smol_client: ResponsesClient) -> None:
    """The model goes on inside a last assistant message that is in progress."""
    asked = {"role": "user", "content": "What is 2+2? One sentence."}
    begun = {"role": "assistant", "content": "2+2 is equal to", "status": "in_progress"}
    response = await smol_client.complete({"input": [asked, begun], "max_output_tokens": 4})
    assert "4" in response.output_text
    closed = begun | {"status": "completed"}
    other = await smol_client.complete({"input": [asked, closed], "max_output_tokens": 4})
    assert other.output_text != response.output_text


async def test_an_open_message_can_be_warmed_and_continued(smol_client: ResponsesClient) -> None:
    """A warm-up that ended inside an assistant message is continued inside it, by tokens and text alike."""
    asked = {"role": "user", "content": "What is 2+2? One sentence."}
    begun = {"role": "assistant", "content": "2+2 is", "status": "in_progress"}
    more = {"role": "assistant", "content": " equal to", "status": "in_progress"}
    warm = await smol_client.prefill({"input": [asked, begun]})
    parts = await smol_client.complete(
        {"input": [more], "previous_response_id": warm.id, "max_output_tokens": 4}
    )
    joined = begun | {"content": "2+2 is equal to"}
    whole = await smol_client.complete({"input": [asked, joined], "max_output_tokens": 4})
    assert parts.output_text == whole.output_text
    assert parts.usage
    assert whole.usage
    assert parts.usage.input_tokens == whole.usage.input_tokens


async def test_candidates_are_scored(smol_client: ResponsesClient) -> None:
    """The likelier continuation has the higher log-probability, and none leaves a trace."""
    request = {
        "input": "What is the capital of France? One word.",
        "generate": False,
        "candidates": ["Paris", "Berlin", "xq zzv"],
    }
    scores = (await smol_client.complete(request)).scores
    assert isinstance(scores, list)
    assert scores[0] > scores[1] > scores[2]
    assert all(score < 0 for score in scores)
    again = (await smol_client.complete(request)).scores
    # In other cells of the KV the same tokens add up in another order: up to 0.42 apart, of the best 200.
    assert again == pytest.approx(scores, abs=0.6)


async def test_the_same_seed_gives_the_same_text(smol_client: ResponsesClient) -> None:
    """Sampling is repeatable with a seed, and varies without."""
    request = {"input": "Invent a word.", "temperature": 1.5, "max_output_tokens": 12}
    texts = [(await smol_client.complete(request | {"seed": seed})).output_text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


async def test_instructions_are_said_once(client: ResponsesClient) -> None:
    """The same instructions with a continuation are in its log already; other ones are added."""
    first = await client.complete({"input": "hi", "instructions": "Be brief."})
    sizes = []
    for instructions in (None, "Be brief.", "Be long."):
        response = await client.complete(
            {"input": "hi", "previous_response_id": first.id, "instructions": instructions}
        )
        assert response.usage
        sizes.append(response.usage.input_tokens)
    assert sizes[0] == sizes[1] < sizes[2]


async def test_too_long_an_input_fails_with_its_code(
    client: ResponsesClient, address: ServerAddress, served: Settings
) -> None:
    """What does not fit into the context is a failed response, without a stream a 400; the next is fine."""
    body, sessions = {"input": "x" * 10_000}, status_of(served).engine.sessions
    with pytest.raises(RequestRefused) as caught:
        await client.complete(body)
    assert caught.value.code == "context_length_exceeded"
    status, answer = fetch(address, "POST", "/v1/responses", body)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    # Nothing of it is left in the engine.
    await asyncio.to_thread(until, lambda: status_of(served).engine.sessions == sessions)
    assert (await client.complete({"input": "hi"})).output_text == "Hello there."


async def test_a_failed_continuation_leaves_its_parent_usable(client: ResponsesClient) -> None:
    """After a continuation that did not fit, the response it named can still be continued."""
    first = await client.complete({"input": "hi"})
    with pytest.raises(RequestRefused):
        await client.complete({"input": "x" * 10_000, "previous_response_id": first.id})
    second = await client.complete({"input": "hi", "previous_response_id": first.id})
    assert second.output_text == "Hello there."
    assert first.usage
    assert times(second).cached_tokens >= first.usage.input_tokens
