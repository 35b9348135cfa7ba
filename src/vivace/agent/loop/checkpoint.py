"""Where a task stands between two turns: what the model is told next, and what it knows already.

Owns the shape, and how an answer becomes input again for a server that has lost it. A new task begins with
the prompt; one that was interrupted goes on from its log (`tasks.resuming`). Does not own the loop (`task`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vivace.agent.events.task import CallMade, ModelAnswered
from vivace.agent.prompting import read_prompt, user

Item = dict[str, Any]  # of a request's input


@dataclass(frozen=True)
class Checkpoint:
    items: tuple[Item, ...]  # what the next request begins with: the prompt, or the outputs of calls
    messages: tuple[str, ...] = ()  # what is said to the model behind them
    previous: str = ""  # the response that the next request continues
    told: tuple[Item, ...] = ()  # all that came before `items`, if the server does not know the response
    turns: int = 0  # that were answered
    tokens: int = 0
    seconds: float = 0.0
    faults: int = 0  # in a row
    text: str = ""  # the model's last words


def new_checkpoint(instruction: str, context: Sequence[Item] = ()) -> Checkpoint:
    """Return the beginning of a task. `context` is what was said before, in another conversation."""
    return Checkpoint((*read_prompt("task"), *context, user(instruction)))


def answer_items(answered: ModelAnswered) -> list[Item]:
    """Return an answer as items of a request's input."""
    steers = [user(text) for text in answered.steers]
    said = [{"role": "assistant", "content": answered.text}] if answered.text else []
    return [*steers, *said, *map(_call_item, answered.calls)]


def output_item(call: CallMade, output: str) -> Item:
    kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
    return {"type": kind, "call_id": call.call_id, "output": output}


def _call_item(call: CallMade) -> Item:
    if call.is_custom:
        kind, given = "custom_tool_call", {"input": call.arguments}
    else:
        kind, given = "function_call", {"arguments": _json_or_empty(call.arguments)}
    return {"type": kind, "call_id": call.call_id, "name": call.name, **given}


def _json_or_empty(arguments: str) -> str:
    """Return the arguments, or none where they are no JSON: they were never, or a secret was taken out."""
    try:
        json.loads(arguments)
    except ValueError:
        return "{}"
    return arguments
