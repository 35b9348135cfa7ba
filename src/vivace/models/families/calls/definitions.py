"""Tools for models that know only functions with JSON parameters.

Owns that view: a custom tool is a function with one string, `input`. Does not own how a family writes it
down.
"""

from typing import Any

from vivace.models.families.base import Tool
from vivace.models.families.calls.json_call import INPUT

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def definition(tool: Tool) -> dict[str, Any]:
    """Return the tool as OpenAI's chat API has it; chat templates print this."""
    description = {"description": text} if (text := described(tool)) else {}
    function = {"name": tool.name, **description, "parameters": parameters(tool)}
    return {"type": "function", "function": function}


def parameters(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of the tool's arguments."""
    if not tool.is_custom:
        return tool.parameters or NOTHING
    text = {"type": "string", "description": "The whole input of the tool, as free text."}
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def described(tool: Tool) -> str:
    if not tool.is_custom or not tool.definition:
        return tool.description
    grammar = "regular expression" if tool.syntax == "regex" else f"{tool.syntax} grammar"
    return f"{tool.description}\n\nThe input must match this {grammar}:\n{tool.definition}".lstrip()
