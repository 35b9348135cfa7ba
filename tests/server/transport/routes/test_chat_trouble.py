"""Chat completions where something is the matter: broken turns, long waits, clients that leave."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIError, BadRequestError, InternalServerError, OpenAI

from tests.server.serving import HANG_S, send, until
from tests.server.transport.routes.chat_stage import CALL, STOP, Stage, Wait, staged
from vivace.client.warm import ServerAddress
from vivace.errors import StartError
from vivace.protocol.shapes.outcomes import Broken, CallDone, Queued, Started, TextDelta

HI: Any = [{"role": "user", "content": "hi"}]
PATH = "/v1/chat/completions"
TOO_LONG = Broken("context_length_exceeded", "It does not fit.")
DIED = Broken("engine_died", "The engine died twice.")


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[Stage, ServerAddress]]:
    """Waits for a first word as long as it takes."""
    with staged(patience_s=60) as pair:
        yield pair


@pytest.fixture(scope="module")
def restless() -> Iterator[tuple[Stage, ServerAddress]]:
    """Waits for nothing, and sends comments all the time."""
    with staged(patience_s=0, beat_s=0.002) as pair:
        yield pair


def client(address: ServerAddress) -> OpenAI:
    return OpenAI(base_url=address.url, api_key=address.token, max_retries=0)


def ask(address: ServerAddress, *, stream: bool = True) -> http.client.HTTPResponse:
    return send(address, "POST", PATH, {"messages": HI, "stream": stream})


def frames(answer: http.client.HTTPResponse) -> list[str]:
    """All of a stream."""
    text = answer.read().decode()
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    return text.removesuffix("\n\n").split("\n\n")


def line_after(answer: http.client.HTTPResponse, beginning: str) -> str:
    """The first line that begins like this."""
    while not (line := answer.readline().decode()).startswith(beginning):
        assert line, "the stream is over"
    return line


# ---- broken turns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("before", [[], [Started()], [Queued(2, 1.0), Queued(1, 0.5), Started()]])
def test_what_breaks_before_the_first_word_has_a_status(
    patient: tuple[Stage, ServerAddress], is_streamed: bool, before: list[Any]
) -> None:
    """Clients understand a status better than an error in a stream: they compact, wait or try again by it."""
    stage, address = patient
    with client(address) as sdk:
        stage.play(*before, TOO_LONG)
        with pytest.raises(BadRequestError, match="does not fit") as caught:
            sdk.chat.completions.create(model="m", messages=HI, stream=is_streamed)
        assert caught.value.code == "context_length_exceeded"
        stage.play(*before, DIED)
        with pytest.raises(InternalServerError) as other:
            sdk.chat.completions.create(model="m", messages=HI, stream=is_streamed)
        assert (other.value.status_code, other.value.code) == (503, "engine_died")


def test_what_breaks_later_is_an_error_in_the_stream(patient: tuple[Stage, ServerAddress]) -> None:
    """The SDK raises it after the text that came before."""
    stage, address = patient
    stage.play(TextDelta("Hel"), DIED)
    with client(address) as sdk:
        stream = sdk.chat.completions.create(model="m", messages=HI, stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(2)] == [None, "Hel"]
        with pytest.raises(APIError, match="died twice") as caught:
            next(stream)
    assert caught.value.code == "engine_died"


def test_a_broken_stream_does_not_say_that_it_is_done(patient: tuple[Stage, ServerAddress]) -> None:
    """Neither finish nor [DONE]: a client that passes over the error sees that the end is missing."""
    stage, address = patient
    stage.play(TextDelta("Hel"), *CALL, DIED)
    *chunks, error = frames(ask(address))
    assert json.loads(error.removeprefix("data: ")) == {
        "error": {
            "message": "The engine died twice.",
            "type": "server_error",
            "code": "engine_died",
            "param": None,
        }
    }
    assert [json.loads(chunk.removeprefix("data: "))["choices"][0]["finish_reason"] for chunk in chunks] == [
        None,
        None,
    ]


def test_a_mistake_of_ours_is_answered(patient: tuple[Stage, ServerAddress]) -> None:
    """In the stream, without a word about what it was."""
    stage, address = patient
    stage.play(TextDelta("Hel"), ValueError("secret"))
    error = frames(ask(address))[-1]
    assert "server_error" in error
    assert "secret" not in error


def test_what_cannot_be_stored_has_failed(patient: tuple[Stage, ServerAddress]) -> None:
    """With `store: true` an end is told only if it is written down."""
    stage, address = patient
    stage.play(TextDelta("Hello."), STOP)
    stage.commit_problem = StartError("The disk is full.")
    with client(address) as sdk:
        with pytest.raises(InternalServerError, match="disk is full") as caught:
            sdk.chat.completions.create(model="m", messages=HI, store=True)
        assert caught.value.status_code == 503
        stream = sdk.chat.completions.create(model="m", messages=HI, store=True, stream=True)
        assert [next(stream).choices[0].finish_reason for _ in range(2)] == [None, None]
        with pytest.raises(APIError, match="disk is full"):
            next(stream)


# ---- long waits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [(), CALL], ids=["prefill", "held call"])
def test_a_silent_stream_is_kept_alive(restless: tuple[Stage, ServerAddress], before: Any) -> None:
    """Comments come while there is nothing to say, and the answer after them is whole."""
    stage, address = restless
    wait = Wait()
    stage.play(*before, wait, *([CallDone()] if before else []), TextDelta("Hello."), STOP)
    answer = ask(address)
    until(wait.is_reached.is_set)
    line_after(answer, ": still here")
    line_after(answer, ": still here")
    wait.end()
    rest = frames(answer)
    assert "data: [DONE]" in rest[-1]
    assert any("Hello." in frame for frame in rest)


def test_the_sdk_passes_over_comments(restless: tuple[Stage, ServerAddress]) -> None:
    """They are no chunks."""
    stage, address = restless
    wait = Wait()
    stage.play(wait, TextDelta("Hello."), STOP, place=Queued(2, 3.0))
    with client(address) as sdk:
        stream = sdk.chat.completions.create(model="m", messages=HI, stream=True)
        assert next(stream).choices[0].delta.role == "assistant"
        wait.end()
        assert [chunk.choices[0].delta.content for chunk in stream] == ["Hello.", None]


def test_a_place_in_the_queue_is_told(restless: tuple[Stage, ServerAddress]) -> None:
    """Where it waits at first, and whenever that changes."""
    stage, address = restless
    stage.play(Queued(1, 0.5), Started(), TextDelta("Hello."), STOP, place=Queued(2, 1.25))
    told = [frame for frame in frames(ask(address)) if frame.startswith(": queued")]
    assert told == [": queued, place 2, about 1.2 s", ": queued, place 1, about 0.5 s"]


def test_a_stream_begins_before_the_first_word_if_that_takes_long(
    restless: tuple[Stage, ServerAddress],
) -> None:
    """The headers and the role are there while the model still reads."""
    stage, address = restless
    wait = Wait()
    stage.play(wait, TextDelta("Hello."), STOP)
    answer = ask(address)
    assert answer.status == 200
    assert json.loads(line_after(answer, "data: ").removeprefix("data: "))["choices"][0]["delta"] == {
        "role": "assistant",
        "content": None,
    }
    until(wait.is_reached.is_set)
    wait.end()
    assert frames(answer)[-1] == "data: [DONE]"


# ---- clients that leave ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("before", [[], [TextDelta("Hel")], [*CALL]], ids=["first", "text", "call"])
@pytest.mark.parametrize("kind", ["patient", "restless"])
def test_a_client_that_leaves_ends_its_turn(
    request: pytest.FixtureRequest, kind: str, before: list[Any], is_streamed: bool
) -> None:
    """Whether anything was sent or not; and no answer is left under way."""
    stage, address = request.getfixturevalue(kind)
    wait = Wait()
    stage.play(*before, wait, STOP)
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=HANG_S)
    body = json.dumps({"messages": HI, "stream": is_streamed})
    connection.request("POST", PATH, body, {"Content-Type": "application/json"})
    until(wait.is_reached.is_set)
    assert not stage.turn.is_interrupted.is_set()
    assert stage.activity.answers == 1
    connection.close()
    until(stage.turn.is_interrupted.is_set)
    until(lambda: stage.activity.answers == 0)


def test_a_reader_that_goes_in_the_middle_ends_its_turn(patient: tuple[Stage, ServerAddress]) -> None:
    """The SDK's stream closed early."""
    stage, address = patient
    wait = Wait()
    stage.play(TextDelta("Hel"), wait, STOP)
    with client(address) as sdk:
        with sdk.chat.completions.create(model="m", messages=HI, stream=True) as stream:
            next(stream)
        until(stage.turn.is_interrupted.is_set)
