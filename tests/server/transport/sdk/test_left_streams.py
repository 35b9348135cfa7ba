"""Both SDKs in the middle of an answer: who leaves a stream frees the engine, and its prompt stays read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.e2e.terminal import wait_until
from tests.server.serving import LONG, script, status_of
from vivace.client.warm import ServerAddress
from vivace.config import Settings

STORY: Any = [{"role": "user", "content": "Tell me a story. " * 20}]
AT_MOST = 0.03  # of the prompt is read again

Left = Callable[[ServerAddress, str], tuple[int, int]]  # tokens of the prompt, and how many were there


def anthropics(address: ServerAddress, model: str) -> tuple[int, int]:
    base = address.url.removesuffix("/v1")
    with Anthropic(base_url=base, api_key=address.token, max_retries=0) as sdk:
        with sdk.messages.stream(model=model, messages=STORY, max_tokens=9000) as stream:
            usage = stream.current_message_snapshot.usage if next(stream.text_stream) else None
        assert usage is not None
        cached = usage.cache_read_input_tokens or 0
        return usage.input_tokens + cached, cached


def openais(address: ServerAddress, model: str) -> tuple[int, int]:
    with OpenAI(base_url=address.url, api_key=address.token, max_retries=0) as sdk:
        with sdk.responses.create(model=model, input=STORY, stream=True) as stream:
            next(event for event in stream if event.type == "response.output_text.delta")
        brief = sdk.responses.create(model=model, input=STORY, max_output_tokens=16)
        assert brief.usage is not None
        return brief.usage.input_tokens, brief.usage.input_tokens_details.cached_tokens


@pytest.mark.parametrize("leave", [anthropics, openais])
def test_who_leaves_a_stream_frees_the_engine(
    leave: Left, address: ServerAddress, served: Settings, tmp_path: Path
) -> None:
    """The turn ends with its connection, and the same prompt is not read again."""
    model = script(tmp_path, replies={"": LONG}, step_ms=2)
    leave(address, model)
    wait_until(lambda: not status_of(served).engine.turns, "an idle engine")
    asked, cached = leave(address, model)
    assert asked - cached <= AT_MOST * asked
    wait_until(lambda: not status_of(served).engine.turns, "an idle engine")
