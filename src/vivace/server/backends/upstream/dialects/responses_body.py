"""The body of a request to an upstream that speaks the Responses API.

Everything is sent each time, and nothing is to be stored there. Does not own the answer
(`responses_reader`).
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.tools import Tool
from vivace.server.backends.upstream.dialects.items import Call, Entry, Message
from vivace.server.backends.upstream.dialects.tools import Toolbox
from vivace.server.backends.upstream.request import UpstreamRequest


def body(question: UpstreamRequest) -> bytes:
    request, toolbox = question.request, question.toolbox
    fields = question.sampling() | {
        "input": [_item(entry, toolbox) for entry in question.entries],
        "instructions": request.instructions or None,
        "store": False,
        "max_output_tokens": request.max_output_tokens,
        "top_logprobs": request.top_logprobs,
        "include": ["message.output_text.logprobs"] if request.wants_logprobs else None,
        "tools": [_tool(wire, tool) for wire, tool in toolbox.allowed.items()] or None,
        "tool_choice": _choice(toolbox),
        "parallel_tool_calls": question.is_parallel,
        "text": _text(question),
        "reasoning": _reasoning(question),
        "truncation": request.truncation,
        "service_tier": question.service_tier,
        "prompt_cache_key": request.prompt_cache_key,
    }
    if not question.upstream.is_openai:
        fields |= question.chat_sampling()
        fields |= {"stop": request.stops or None, "prediction": question.prediction}
    return question.encoded(fields)


def _item(entry: Entry, toolbox: Toolbox) -> dict[str, Any]:
    """Return an item without its id: it is ours, and a server looks up the ids that it gets."""
    match entry:
        case Message():
            return _message(entry)
        case Call(call_id=call_id, text=text, is_custom=is_custom):
            name = toolbox.wire_name(entry.name, entry.namespace)
            if is_custom:
                return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text}
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text or "{}"}
    kind = "custom_tool_call_output" if entry.is_custom else "function_call_output"
    return {"type": kind, "call_id": entry.call_id, "output": entry.text}


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": "message", "role": message.role}
    if message.is_open:
        part = {"type": "output_text", "text": "".join(message.parts), "annotations": []}
        return fields | {"status": "in_progress", "content": [part]}
    if message.role == "assistant" or len(message.parts) < 2:
        return fields | {"content": "".join(message.parts)}
    return fields | {"content": [{"type": "input_text", "text": text} for text in message.parts]}


def _tool(wire_name: str, tool: Tool) -> dict[str, Any]:
    about = {"name": wire_name, "description": tool.description}
    if not tool.is_custom:
        parameters = tool.parameters or {"type": "object", "properties": {}}
        strict = {} if tool.is_strict else {"strict": False}  # strict is what it is anyway
        return {"type": "function"} | about | {"parameters": parameters} | strict
    if tool.syntax == "text":
        return {"type": "custom"} | about
    grammar = {"type": "grammar", "syntax": tool.syntax, "definition": tool.definition}
    return {"type": "custom"} | about | {"format": grammar}


def _choice(toolbox: Toolbox) -> Any:
    if not toolbox.allowed:
        return None
    if only := toolbox.only:
        wire_name, tool = only
        return {"type": "custom" if tool.is_custom else "function", "name": wire_name}
    return toolbox.mode


def _text(question: UpstreamRequest) -> dict[str, Any] | None:
    given = question.request.text
    if given is None:
        return None
    text: dict[str, Any] = {"verbosity": given.verbosity} if given.verbosity else {}
    if given.format.type != "text":
        named = {"name": given.format.name or "answer"} if given.format.type == "json_schema" else {}
        text["format"] = msgspec.to_builtins(given.format) | named
    return text or None


def _reasoning(question: UpstreamRequest) -> dict[str, Any] | None:
    given = question.request.reasoning
    wanted = {"effort": question.request.asked_effort, "summary": given.summary} if given else {}
    return {name: value for name, value in wanted.items() if value is not None} or None
