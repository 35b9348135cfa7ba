"""The conversation that is measured: instructions, tools, and a loop of tool calls with their outputs.

Owns its text. It has the sizes of a coding agent's: ten tools of about 19 KB together, 8 KB of instructions,
outputs of 1 to 8 KB. The words are those of Python's own library: they are about code, and everyone has them.
"""

import argparse
import difflib
import inspect
import json
import logging
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    subprocess.run,
    shutil.copytree,
    os.walk,
    difflib.unified_diff,
    difflib.context_diff,
    json.dumps,
    json.dump,
    json.loads,
    tempfile.mkstemp,
    logging.basicConfig,
)
CALL = {"args": ["git", "status", "--short"], "cwd": "/home/user/project"}
CALL_TEXT = (
    f'<tool_call>\n{{"name": "run", "arguments": {json.dumps(CALL)}}}\n</tool_call>'  # as a model says it
)
INSTRUCTION_CHARS = 8000
OUTPUT_CHARS = (1000, 8000)

Item = dict[str, Any]


def tools() -> list[Item]:
    return [_tool(function) for function in FUNCTIONS]


def _tool(function: Callable[..., Any]) -> Item:
    parameters = inspect.signature(function).parameters
    properties = {
        name: {"type": "string", "description": f"{name} of {function.__name__}."} for name in parameters
    }
    return {
        "type": "function",
        "name": function.__name__,
        "description": inspect.getdoc(function),
        "strict": False,
        "parameters": {"type": "object", "properties": properties, "additionalProperties": False},
    }


def opening(salt: str, instruction_chars: int = INSTRUCTION_CHARS) -> list[Item]:
    """Return the first input. The salt is at its beginning, so that no cache has a prefix of it."""
    instructions = f"Session {salt}.\n{inspect.getsource(difflib)[:instruction_chars]}"
    return [
        {"type": "message", "role": "developer", "content": [part(instructions)]},
        {"type": "message", "role": "user", "content": [part("Find out why the build fails.")]},
    ]


def output(call_id: str, chance: random.Random, chars: tuple[int, int] = OUTPUT_CHARS) -> Item:
    """Return the output of a tool call: a piece of a file."""
    text, length = inspect.getsource(argparse), chance.randint(*chars)
    start = chance.randrange(len(text) - length)
    return {"type": "function_call_output", "call_id": call_id, "output": text[start : start + length]}


def part(text: str) -> Item:
    return {"type": "input_text", "text": text}
