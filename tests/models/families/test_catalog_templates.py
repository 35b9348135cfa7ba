"""What a catalog model is given by name, against the chat template inside its own file.

The template is read from the GGUF file and rendered with Jinja2, as llama.cpp's Python package does. One
difference is wanted: Qwen2.5-Coder's template has two braces around the example of a call, and the model
then writes two.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.models.families import conversation as talk
from tests.models.families.test_golden import BARE, PLAIN, special_tokens
from vivace.config import load_settings
from vivace.models.catalog import CATALOG, ModelCard
from vivace.models.families.base import Call, Entry, Message, Output, OutputSpec, Tool
from vivace.models.families.calls.definitions import definition
from vivace.models.families.choose import family_for, template_of
from vivace.models.store import card_path, is_complete
from vivace.models.tokenizer import GgufTokenizer

WITH_TEMPLATE = [card for card in CATALOG if not card.template]  # in the file itself
SECOND: list[Entry] = [Message("user", "And in Rome?"), *talk.CALLING, *talk.OUTPUTS, *talk.ANSWERED]
CONVERSATIONS: dict[str, list[Entry]] = {
    "one message": BARE,
    "one message, and a system message": talk.BEGIN,
    "several turns": PLAIN,
    "several turns without a system message": PLAIN[1:],
    "calls": talk.WHOLE,
    "calls in two turns without a system message": [*talk.WHOLE[1:], *SECOND, *talk.ASKED],
}


def file_of(card: ModelCard) -> Path:
    settings = load_settings()
    if not is_complete(settings, card):
        pytest.skip(f"{card.name} is not on this machine")
    return card_path(settings, card)


@cache
def read(path: Path) -> tuple[str, GgufTokenizer]:
    """The template and the tokenizer inside a file, which takes seconds to read."""
    return template_of(path), GgufTokenizer(path)


def rendered(template: str, entries: list[Entry], tools: tuple[Tool, ...]) -> str:
    """What the template makes of a conversation, up to where the model speaks."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    text = environment.from_string(template).render(
        messages=as_messages(entries),
        tools=[definition(tool) for tool in tools] or None,
        add_generation_prompt=True,
    )
    return text.replace('{{"name": <function-name>', '{"name": <function-name>').replace(
        "<args-json-object>}}", "<args-json-object>}"
    )


def as_messages(entries: list[Entry]) -> list[dict[str, Any]]:
    """The entries in the shape that chat templates read."""
    messages: list[dict[str, Any]] = []
    for entry in entries:
        match entry:
            case Message():
                messages.append({"role": entry.role, "content": entry.text})
            case Call():
                call = {"function": {"name": entry.name, "arguments": json.loads(entry.arguments)}}
                if messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": ""})
                messages[-1].setdefault("tool_calls", []).append(call)
            case Output():
                messages.append({"role": "tool", "content": entry.text})
    return messages


@pytest.mark.parametrize("card", WITH_TEMPLATE, ids=lambda card: card.name)
@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("tools", [(), talk.TOOLS], ids=["no tools", "tools"])
def test_a_model_by_name_gets_the_tokens_of_its_files_template(
    card: ModelCard, name: str, tools: tuple[Tool, ...]
) -> None:
    """A catalog model by name, over several turns, gets token by token what its own template says."""
    path, entries = file_of(card), CONVERSATIONS[name]
    template, tokenizer = read(path)
    knows_tools = "tool_call" in template
    if not knows_tools and (tools or any(isinstance(entry, Call) for entry in entries)):
        pytest.skip("its template does not know tools")
    family = family_for(tokenizer, card.name)
    log = family.render(entries, tools=tools)
    log += family.answer(log, OutputSpec())
    assert log == special_tokens(tokenizer, rendered(template, entries, tools))
