"""The body of a request to an upstream that speaks chat completions.

Items become messages. What trips chat templates is avoided: more than one system message at the start, two
user messages in a row, calls apart from the message they belong to, arguments that are no JSON. Does not
own the answer (`chat_reader`).
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.tools import Tool
from vivace.server.backends.upstream.dialects.custom_input import SCHEMA, wrapped
from vivace.server.backends.upstream.dialects.items import Call, Message, Output
from vivace.server.backends.upstream.dialects.tools import Toolbox, is_strictly_closed
from vivace.server.backends.upstream.request import UpstreamRequest

MAX_STOPS = 4  # more are refused; all of them are looked for here anyway


def body(question: UpstreamRequest) -> bytes:
    request, toolbox, is_openai = question.request, question.toolbox, question.upstream.is_openai
    is_short = len(request.stops) <= MAX_STOPS
    limit = (
        "max_completion_tokens" if is_openai else "max_tokens"
    )  # not every other server knows the new name
    fields = question.sampling() | question.chat_sampling()
    fields |= {
        "messages": _messages(question),
        "stream_options": {"include_usage": True} if question.is_streaming else None,
        limit: request.max_output_tokens,
        "stop": request.stops if request.stops and is_short else None,
        "logprobs": True if request.wants_logprobs else None,
        "top_logprobs": request.top_logprobs or None,
        "tools": [_tool(wire, tool) for wire, tool in toolbox.allowed.items()] or None,
        "tool_choice": _choice(toolbox),
        "parallel_tool_calls": question.is_parallel,
        "response_format": _format(question),
        "reasoning_effort": request.asked_effort,
    }
    if is_openai:  # hints, which a strict server of someone else's would refuse
        fields |= {
            "verbosity": request.text.verbosity if request.text else None,
            "service_tier": question.service_tier,
            "prompt_cache_key": request.prompt_cache_key,
        }
    if not (toolbox.allowed or request.max_output_tokens or request.wants_logprobs):
        fields["prediction"] = question.prediction  # OpenAI takes it with none of these
    return question.encoded(fields)


def _messages(question: UpstreamRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if question.request.instructions:
        messages.append({"role": "system", "content": question.request.instructions})
    for entry in question.entries:
        match entry:
            case Output(call_id=call_id, text=text):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case Call():
                message = _last(messages, "assistant")
                message.setdefault("tool_calls", []).append(_call(entry, question.toolbox))
            case Message(role=role, parts=parts):
                text = ("" if role == "assistant" else "\n").join(parts)
                message = _last(messages, "system" if role == "developer" else role)
                before = message["content"]
                message["content"] = f"{before}\n\n{text}" if before else text
    return messages


def _last(messages: list[dict[str, Any]], role: str) -> dict[str, Any]:
    """Return the last message if it has this role, or a new one."""
    if not messages or messages[-1]["role"] != role:
        messages.append({"role": role, "content": ""})  # not every server takes null
    return messages[-1]


def _call(call: Call, toolbox: Toolbox) -> dict[str, Any]:
    arguments = wrapped(call.text) if call.is_custom else _arguments(call.text)
    name = toolbox.wire_name(call.name, call.namespace)
    return {"id": call.call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(text: str) -> str:
    """Return arguments that servers can parse: malformed ones in the history would fail every later turn."""
    if not text.strip():
        return "{}"
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        is_object = False
    return text if is_object else wrapped(text)


def _tool(wire_name: str, tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": wire_name, "description": _description(tool)}
    if tool.is_custom:
        function["parameters"] = SCHEMA
    else:
        function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
        if tool.is_strict and tool.parameters and _can_be_strict(tool.parameters):
            function["strict"] = True
    return {"type": "function", "function": function}


def _description(tool: Tool) -> str:
    if not tool.definition:
        return tool.description
    return f"{tool.description}\n\nThe input follows this grammar ({tool.syntax}):\n{tool.definition}".strip()


def _can_be_strict(parameters: dict[str, Any]) -> bool:
    try:
        return is_strictly_closed(parameters)
    except RecursionError:
        return False


def _choice(toolbox: Toolbox) -> Any:
    if not toolbox.allowed:
        return None
    if only := toolbox.only:
        return {"type": "function", "function": {"name": only[0]}}
    return toolbox.mode


def _format(question: UpstreamRequest) -> dict[str, Any] | None:
    given = question.request.text
    if given is None or given.format.type == "text":
        return None
    if given.format.type == "json_object":
        return {"type": "json_object"}
    schema = msgspec.to_builtins(given.format) | {"name": given.format.name or "answer"}
    schema.pop("type", None)
    return {"type": "json_schema", "json_schema": schema}
