"""The texts with which a chat template is asked how it writes, and conversations in the shape it reads.

Owns the shape of messages (transformers' and OpenAI's chat API), and texts that stand for others while a
template is learned. They are plain words, so that no template treats them differently.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vivace.models.families.base import Call, Entry, Message, Output, Thought, Tool
from vivace.models.families.calls.definitions import described, parameters
from vivace.models.families.calls.json_call import INPUT
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.template.sandbox import Written

Chat = dict[str, Any]  # one message

SYSTEM, ASKED, ASKED_MORE = "Zebra instructs.", "Walrus question", "Penguin question"
ANSWERED, ANSWERED_MORE, THOUGHT = "Ostrich answer", "Heron answer", "Ibis reasoning"
TOOL_NAME, KEY, VALUE, RESULT = "probe_tool", "probekey", "Stork value", "Lemur result"
TOOL = Tool(
    TOOL_NAME,
    "Badger description.",
    {
        "type": "object",
        "properties": {KEY: {"type": "string", "description": "Otter key."}},
        "required": [KEY],
    },
)


def said(role: str, text: str) -> Chat:
    return {"role": role, "content": text}


def answer_of(text: str, thought: str = "", thought_key: str = "", calls: Sequence[Chat] = ()) -> Chat:
    chat = said("assistant", text)
    if thought and thought_key:
        chat[thought_key] = thought
    if calls:
        chat["tool_calls"] = list(calls)
    return chat


def call_of(name: str, arguments: Mapping[str, Any], call_id: str, *, is_text: bool) -> Chat:
    given: Any = as_json(arguments) if is_text else arguments
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}


def result_of(text: str, name: str, call_id: str) -> Chat:
    return {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}


def arguments_of(call: Call) -> Written:
    """Return a call's arguments as an object, whatever the client sent; JSON keeps the text that it has.

    A model's own spaces and line breaks stay: in other tokens, all behind the call would be read again.
    """
    found = None if call.is_custom else decoded(call.arguments.strip() or "{}")
    if not isinstance(found, Mapping):
        return Written({INPUT: call.arguments})
    given = Written(found)
    given.text = call.arguments.strip()
    return given


def as_json(arguments: Mapping[str, Any]) -> str:
    text = arguments.text if isinstance(arguments, Written) else ""
    return text or json.dumps(arguments, ensure_ascii=False)


def definition_of(tool: Tool, text: Any, schema: Any) -> dict[str, Any]:
    """Return a tool as templates read it, its own words through `text` and `schema`."""
    function = {
        "name": text(tool.name),
        "description": text(described(tool)),
        "parameters": schema(parameters(tool)),
    }
    return {"type": "function", "function": function}


class Turn(list[Entry]):
    """Entries that one message of a template holds: an answer's parts, or the outputs of its calls."""

    @property
    def kind(self) -> str:
        match self[0]:
            case Message(role=role) if role != "assistant":
                return role
            case Output():
                return "tool"
        return "assistant"

    @property
    def is_open(self) -> bool:
        last = self[-1]
        return isinstance(last, Message) and last.is_open


def turns_of(entries: Sequence[Entry]) -> list[Turn]:
    """Put together what a template writes as one."""
    turns: list[Turn] = []
    for entry in entries:
        if turns and _goes_on(turns[-1], entry):
            turns[-1].append(entry)
        else:
            turns.append(Turn([entry]))
    return turns


def _goes_on(turn: Turn, entry: Entry) -> bool:
    last = turn[-1]
    match entry:
        case Output():
            return isinstance(last, Output)
        case Call():
            return turn.kind == "assistant" and not turn.is_open
        case Message(role="assistant"):
            return isinstance(last, Thought) or (turn.kind == "assistant" and turn.is_open)
    return isinstance(entry, Thought) and isinstance(last, Thought)
