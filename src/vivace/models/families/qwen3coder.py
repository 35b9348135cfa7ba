"""Qwen3-Coder: tools and calls as tags, in the frame of the other Qwens.

Owns how tools are announced and called. A custom tool's free text stands in its parameter `input` as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vivace.models.families.base import Call, Output, Tool
from vivace.models.families.calls.definitions import described, parameters
from vivace.models.families.calls.json_call import INPUT, to_json
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.calls.known_formats import CLOSE, OPEN, QWEN_CODER
from vivace.models.families.framing import Pieces
from vivace.models.families.qwen3 import Qwen3, Thinking
from vivace.models.families.qwen25 import CHANGED
from vivace.models.families.token_writer import TemplateText
from vivace.models.tokenizer import Tokenizer

SYSTEM = TemplateText(
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."
)
_TOOLS_BEGIN = TemplateText("# Tools\n\nYou have access to the following functions:\n\n<tools>")
_TOOLS_END = TemplateText(
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function "
    "call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge "
    "and do not tell the user about function calls\n</IMPORTANT>"
)


class Qwen3Coder(Qwen3):
    style = QWEN_CODER.style
    form = QWEN_CODER.form

    def __init__(self, tokenizer: Tokenizer, *, thinking: Thinking = "never") -> None:
        super().__init__(tokenizer, thinking=thinking)

    def system(self, text: str | None, tools: Sequence[Tool], *, is_first: bool) -> Pieces:
        head: list[str] = [] if text is None else [text]
        if not tools:
            return head
        if text is None and is_first:
            head = [SYSTEM]
        gap = [TemplateText("\n\n")] if head else []
        return [*head, *gap, *([] if is_first else [CHANGED]), *self.tools(tools)]

    def tools(self, tools: Sequence[Tool]) -> Pieces:
        return [_TOOLS_BEGIN, *map(_tool_text, tools), _TOOLS_END]

    def call(self, call: Call, *, behind: str) -> Pieces:
        glue = {"text": "\n\n", "call": "\n"}.get(behind, "")
        pieces: list[str] = [TemplateText(f"{glue}{OPEN}\n"), f"<function={call.name}>\n"]
        for key, value in _arguments(call).items():
            pieces += [f"<parameter={key}>\n{_shown(value)}\n</parameter>\n"]
        return [*pieces, TemplateText(f"</function>\n{CLOSE}")]

    def output(self, output: Output, *, is_first: bool) -> Pieces:  # noqa: ARG002
        return [TemplateText("<tool_response>\n"), output.text, TemplateText("\n</tool_response>\n")]


def _tool_text(tool: Tool) -> str:
    """Return a tool in the form of Qwen3-Coder's template."""
    schema = parameters(tool)
    properties = schema.get("properties")
    lines = ["", "<function>", f"<name>{tool.name}</name>"]
    if text := described(tool).strip():
        lines.append(f"<description>{text}</description>")
    lines.append("<parameters>")
    for name, fields in properties.items() if isinstance(properties, Mapping) else ():
        lines += ["<parameter>", f"<name>{name}</name>", *_fields(fields), "</parameter>"]
    lines += [*_others(schema, {"type", "properties"}), "</parameters>", "</function>"]
    return "\n".join(lines)


def _fields(schema: Any) -> list[str]:
    if not isinstance(schema, Mapping):
        return []
    first = [f"<type>{schema['type']}</type>"] if "type" in schema else []
    if "description" in schema:
        first.append(f"<description>{str(schema['description']).strip()}</description>")
    return [*first, *_others(schema, {"name", "type", "description"})]


def _others(schema: Mapping[str, Any], known: set[str]) -> list[str]:
    return [f"<{key}>{_shown(value)}</{key}>" for key, value in schema.items() if key not in known]


def _shown(value: Any) -> str:
    return to_json(value) if isinstance(value, Mapping | list) else str(value)


def _arguments(call: Call) -> Mapping[str, Any]:
    """Return a call's arguments. What is not a JSON object becomes the one parameter `arguments`."""
    if call.is_custom:
        return {INPUT: call.arguments}
    value = decoded(call.arguments.strip() or "{}")
    return value if isinstance(value, Mapping) else {"arguments": call.arguments}
