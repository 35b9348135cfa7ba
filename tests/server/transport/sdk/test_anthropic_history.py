"""A client of Anthropic's API sends its whole history with each turn: what is in the KV is not read again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock, Usage

from tests.server.serving import script
from vivace.client.warm import ServerAddress

PAINT: Any = {
    "name": "paint",
    "description": "Paints a wall.",
    "input_schema": {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "coats": {"type": "integer", "maximum": 9}},
        "required": ["colour", "coats"],
        "additionalProperties": False,
    },
    "strict": True,
}
# As Claude Code sends it: the first block differs in every conversation.
SYSTEM: Any = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.a1b; cc_entrypoint=cli;"},
    {"type": "text", "text": "You help with walls.", "cache_control": {"type": "ephemeral"}},
]
GLUE_TOKENS = 4  # between an answer and what follows it


@pytest.fixture
def sdk(smol_address: ServerAddress) -> Iterator[Anthropic]:
    with client(smol_address) as sdk:
        yield sdk


def client(address: ServerAddress) -> Anthropic:
    return Anthropic(base_url=address.url.removesuffix("/v1"), api_key=address.token, max_retries=0)


def read(usage: Usage) -> int:
    """How long the prompt was."""
    return (
        usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    )


def continued(before: Message, after: Message) -> None:
    """All that the one read and wrote was in the KV of the other."""
    known = read(before.usage) + before.usage.output_tokens
    assert (after.usage.cache_read_input_tokens or 0) >= known - GLUE_TOKENS


def sent_back(answer: Message) -> Any:
    """The answer as a client in JavaScript sends it: parsed, and written without spaces."""
    content = [block.model_dump(exclude_none=True) for block in answer.content]
    return {"role": "assistant", "content": json.loads(json.dumps(content, separators=(",", ":")))}


def test_a_conversation_with_tools_is_read_once(sdk: Anthropic) -> None:
    """Of a real model: text and calls come back as the tokens that it wrote. Marks may move."""
    first: Any = {
        "role": "user",
        "content": [{"type": "text", "text": "The wall?", "cache_control": {"type": "ephemeral"}}],
    }
    fields: Any = {"model": "claude-opus-4-8", "max_tokens": 60, "tools": [PAINT], "system": SYSTEM}
    asked: Message = sdk.messages.create(**fields, messages=[first], tool_choice={"type": "any"})
    (used,) = [block for block in asked.content if isinstance(block, ToolUseBlock)]
    result = {"type": "tool_result", "tool_use_id": used.id, "content": "painted"}
    history: list[Any] = [
        {"role": "user", "content": "The wall?"},
        sent_back(asked),
        {"role": "user", "content": [result, {"type": "text", "text": "Tell me more."}]},
    ]
    with sdk.messages.stream(**fields, messages=history, tool_choice={"type": "none"}) as stream:
        told = stream.get_final_message()
    continued(asked, told)
    history += [sent_back(told), {"role": "user", "content": "And now?"}]
    last = sdk.messages.create(**fields, messages=history, tool_choice={"type": "none"})
    continued(told, last)
    assert last.usage.input_tokens < read(last.usage) / 5


def test_another_conversation_shares_the_beginning(sdk: Anthropic) -> None:
    """The billing header does not part them."""
    fields: Any = {"model": "claude-opus-4-8", "max_tokens": 3, "tools": [PAINT]}
    one = sdk.messages.create(**fields, system=SYSTEM, messages=[{"role": "user", "content": "One?"}])
    other = [SYSTEM[0] | {"text": "x-anthropic-billing-header: cc_version=2.1.197.fff;"}, *SYSTEM[1:]]
    two = sdk.messages.create(**fields, system=other, messages=[{"role": "user", "content": "Two?"}])
    assert (two.usage.cache_read_input_tokens or 0) > read(one.usage) - 20


def test_thoughts_are_read_once(address: ServerAddress, tmp_path: Path) -> None:
    """A thought comes back with its signature, also in front of a call; with a wrong one it is left out."""
    call = '<tool_call>\n{"name": "paint", "arguments": {"colour": "red", "coats": 1}}\n</tool_call>'
    replies = {"done": "<think>\nGood.\n</think>\n\nIt is red.", "": f"<think>\nHm, red.\n</think>\n\n{call}"}
    fields: Any = {
        "model": script(tmp_path, replies=replies, family="qwen3"),
        "max_tokens": 500,
        "tools": [PAINT | {"strict": False}],
        "thinking": {"type": "adaptive"},
    }
    question: Any = {"role": "user", "content": "The wall?"}
    with client(address) as sdk:
        with sdk.messages.stream(**fields, messages=[question]) as stream:
            asked = stream.get_final_message()
        thought, used = asked.content
        assert isinstance(thought, ThinkingBlock)
        assert isinstance(used, ToolUseBlock)
        assert thought.thinking.strip() == "Hm, red."
        result = {"type": "tool_result", "tool_use_id": used.id, "content": "done"}
        history: list[Any] = [question, sent_back(asked), {"role": "user", "content": [result]}]
        told = sdk.messages.create(**fields, messages=history)
        assert isinstance(told.content[-1], TextBlock)
        assert told.content[-1].text == "It is red."
        continued(asked, told)
        forged = sent_back(asked)
        forged["content"][0]["signature"] = "AAAA"
        without = sdk.messages.count_tokens(
            **{name: fields[name] for name in ("model", "tools", "thinking")},
            messages=[question, forged, history[2]],
        )
    assert without.input_tokens < read(told.usage)
