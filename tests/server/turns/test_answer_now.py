"""Thinking that is cut short: by the client, or by the effort's tokens. The same response goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import script
from tests.server.turns.test_steering import ENDS, Socket, socket

__all__ = ["socket"]

THOUGHT = "<think>\n" + "hm " * 600
END = "\n</think>\n\n"
NOW = "response.answer_now"


@pytest.fixture
def thinker(tmp_path: Path) -> Callable[..., str]:
    """Return a model that thinks for long, byte by byte."""

    def thinker(family: str = "qwen3", reply: str = THOUGHT, **fields: Any) -> str:
        return script(tmp_path, family=family, replies={"": reply}, step_ms=2, **fields)

    return thinker


def of_kind(done: dict[str, Any], kind: str) -> list[str]:
    return [item["content"][0]["text"] for item in done["response"]["output"] if item["type"] == kind]


async def test_answer_now_ends_the_thinking_and_keeps_the_kv(
    socket: Socket, thinker: Callable[..., str]
) -> None:
    """Accepted, then the answer in the same response; of all that was thought nothing is read again."""
    await socket.say("response.create", model=thinker(), input="go", max_output_tokens=200)
    created = await socket.until_type("response.created")
    await socket.until_type("response.reasoning_text.delta")
    await socket.say(NOW, response_id=created["response"]["id"])
    accepted = await socket.until_type(f"{NOW}.accepted")
    assert accepted["response_id"] == created["response"]["id"]
    await socket.until_type("response.output_text.delta")
    done = await socket.until_type(*ENDS)
    assert done["response"]["id"] == created["response"]["id"]
    [thought], [answer] = of_kind(done, "reasoning"), of_kind(done, "message")
    assert THOUGHT.removeprefix("<think>\n").startswith(thought)
    assert answer
    usage, times = done["response"]["usage"], done["response"]["vivace"]["waterfall"]
    assert usage["output_tokens"] == 200
    assert usage["output_tokens_details"]["reasoning_tokens"] < 150
    assert times["new_tokens"] <= usage["input_tokens"] + len(END) + 2
    numbers = [event["sequence_number"] for event in socket.heard]
    assert numbers == list(range(len(numbers)))


async def test_the_next_turn_goes_on_behind_it(socket: Socket, thinker: Callable[..., str]) -> None:
    """The log has the end of the thinking: what follows prefills its own tokens only."""
    model = thinker()
    await socket.say("response.create", model=model, input="go", max_output_tokens=60)
    created = await socket.until_type("response.created")
    await socket.until_type("response.reasoning_text.delta")
    await socket.say(NOW, response_id=created["response"]["id"])
    done = await socket.until_type(*ENDS)
    await socket.say(
        "response.create",
        model=model,
        input="more",
        previous_response_id=created["response"]["id"],
        max_output_tokens=5,
    )
    more = await socket.until_type(*ENDS)
    assert more["response"]["usage"]["input_tokens_details"]["cached_tokens"] >= (
        done["response"]["usage"]["total_tokens"] - 1
    )


async def test_the_effort_limits_the_thinking(socket: Socket, thinker: Callable[..., str]) -> None:
    """When its tokens are used up, a model that always thinks answers."""
    model = thinker("qwen3-thinking", THOUGHT.removeprefix("<think>\n"))
    await socket.say(
        "response.create", model=model, input="go", reasoning={"effort": "minimal"}, max_output_tokens=300
    )
    done = await socket.until_type(*ENDS)
    assert 128 <= done["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] < 250
    assert of_kind(done, "message")


async def test_without_an_effort_it_thinks_as_long_as_it_wants(
    socket: Socket, thinker: Callable[..., str]
) -> None:
    """Nothing is cut that nobody asked to cut."""
    reply = THOUGHT.removeprefix("<think>\n")[:600]
    await socket.say(
        "response.create", model=thinker("qwen3-thinking", f"{reply}</think>\n\nYes."), input="go"
    )
    done = await socket.until_type(*ENDS)
    assert of_kind(done, "message") == ["Yes."]
    assert len(of_kind(done, "reasoning")[0]) >= 590


async def test_a_schema_holds_for_the_answer_behind_it(socket: Socket, thinker: Callable[..., str]) -> None:
    """The grammar of the answer is read on behind the end of the thinking."""
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "integer"}, "strict": True}
    model = thinker(reply=THOUGHT.removeprefix("<think>\n"))
    await socket.say(
        "response.create", model=model, input="go", text={"format": schema}, max_output_tokens=90
    )
    created = await socket.until_type("response.created")
    await socket.until_type("response.reasoning_text.delta")
    await socket.say(NOW, response_id=created["response"]["id"])
    done = await socket.until_type(*ENDS)
    assert done["type"] != "response.failed"
    assert all(each.strip("-0123456789") == "" for each in of_kind(done, "message"))


@pytest.mark.parametrize("family", ["chatml", "qwen3-instruct"])
async def test_a_model_that_does_not_think_is_left_alone(
    socket: Socket, thinker: Callable[..., str], family: str
) -> None:
    """The message is accepted, and the text is what it would have been."""
    await socket.say("response.create", model=thinker(family, "x" * 100), input="go")
    created = await socket.until_type("response.created")
    await socket.until_type("response.output_text.delta")
    await socket.say(NOW, response_id=created["response"]["id"])
    done = await socket.until_type(*ENDS)
    assert of_kind(done, "message") == ["x" * 100]


async def test_answer_now_before_the_first_token(socket: Socket, thinker: Callable[..., str]) -> None:
    """Asked while the prompt is read, the model does not begin to think."""
    model = thinker(reply="Straight to it.", prefill_token_ms=5)
    await socket.say("response.create", model=model, input="go " * 40)
    created = await socket.until_type("response.created")
    await socket.say(NOW, response_id=created["response"]["id"])
    done = await socket.until_type(*ENDS)
    assert of_kind(done, "reasoning") == []
    assert done["type"] == "response.completed"


async def test_a_response_that_is_over_or_unknown(socket: Socket, thinker: Callable[..., str]) -> None:
    """Too late is no mistake; a response that was never here is."""
    await socket.say("response.create", model=thinker(reply="Done."), input="go")
    done = await socket.until_type(*ENDS)
    await socket.say(NOW, response_id=done["response"]["id"])
    await socket.say(NOW, response_id="resp_none")
    error = await socket.until_type("error")
    assert error["error"]["code"] == "response_not_found"
    assert not any(event["type"] == f"{NOW}.accepted" for event in socket.heard)


async def test_an_interrupt_behind_it_still_ends_the_turn(
    socket: Socket, thinker: Callable[..., str]
) -> None:
    """Whoever stops the response right after it gets the end, once."""
    await socket.say("response.create", model=thinker(), input="go")
    created = await socket.until_type("response.created")
    await socket.until_type("response.reasoning_text.delta")
    await socket.say(NOW, response_id=created["response"]["id"])
    await socket.say("response.interrupt", response_id=created["response"]["id"])
    done = await socket.until_type(*ENDS)
    assert done["response"]["incomplete_details"]["reason"] == "interrupted"
