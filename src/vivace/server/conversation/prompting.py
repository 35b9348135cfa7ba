"""A request as a conversation: items become the entries that a model family renders.

Owns what of a request is new to the log, and what the answer may contain. Does not own tokens (`families`).
"""

import hashlib
from collections.abc import Sequence

import msgspec

from vivace.models.families.base import (
    Call,
    Entry,
    Interruption,
    Message,
    Output,
    OutputSpec,
    Thought,
    Tool,
)
from vivace.protocol.shapes.items import CALLS, OUTPUTS, InputItem, joined
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.shapes.tools import Choice, parse_choice, parse_tools, tools_in_items
from vivace.server.conversation.stable_prompt import with_changing_last
from vivace.server.conversation.token_log import LogContents, StoredResponse


class Prompt(msgspec.Struct):
    """What goes to the end of the log."""

    entries: list[Entry]
    tools: list[Tool]  # that the log does not tell of yet
    spec: OutputSpec
    log_contents: LogContents  # what the log tells of afterwards


def prompt_of(
    request: ResponseCreate,
    log_contents: LogContents,
    previous: StoredResponse | None,
    before: Sequence[InputItem] = (),
    *,
    moves_changing: bool = False,
) -> Prompt:
    """Make the prompt. `log_contents`: what the log has; `before`: earlier items that are in no log here.

    `moves_changing`: the log is new, and what changes in its system text may stand behind the tools.
    """
    items = [*before, *request.items]
    inline_tools = tuple(tools_in_items(items)) or log_contents.inline_tools
    given = [*parse_tools(request.tools or []), *inline_tools]
    tools = [Tool(**msgspec.structs.asdict(tool)) for tool in given]
    digest = _digest(tools) if tools else log_contents.tools
    entries: list[Entry] = []
    if request.instructions and request.instructions != log_contents.instructions:
        entries.append(Message("system", request.instructions))
    if log_contents.is_interrupted:
        entries.append(Interruption())
    names = {item.call_id: item.name or "" for item in items if item.type in CALLS and item.call_id}
    for item in items:
        if entry := _entry(item, names, previous, is_last=item is items[-1]):
            entries.append(entry)
            if _is_cut_off(item):
                entries.append(Interruption())
    return Prompt(
        entries=with_changing_last(entries, tools) if moves_changing else entries,
        tools=tools if digest != log_contents.tools else [],
        spec=_output_spec(request, tools, parse_choice(request.tool_choice, given)),
        log_contents=LogContents(request.instructions or log_contents.instructions, digest, inline_tools),
    )


def _output_spec(request: ResponseCreate, tools: Sequence[Tool], choice: Choice) -> OutputSpec:
    allowed = [tool for tool in tools if choice.names is None or tool.name in choice.names]
    return OutputSpec(
        tools=() if choice.mode == "none" else tuple(allowed),
        choice=choice.mode,
        is_parallel=request.parallel_tool_calls is not False,
        schema=request.schema,
        effort=request.effort or "",
    )


def _digest(tools: Sequence[Tool]) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(tools)).hexdigest()[:32]


def _entry(
    item: InputItem, names: dict[str, str], previous: StoredResponse | None, *, is_last: bool
) -> Entry | None:
    if item.type in CALLS:
        return Call(item.name or "", item.call_text, item.call_id or "", item.type == "custom_tool_call")
    if item.type in OUTPUTS:
        call_id = item.call_id or ""
        name = names.get(call_id) or (previous.call_name(call_id) if previous else "")
        return Output(item.output_text, call_id, name)
    if item.type == "reasoning":
        text = item.text or joined(item.summary)
        return Thought(text) if text else None
    if item.type == "additional_tools" or item.role is None:
        return None
    role = "system" if item.role == "developer" else item.role
    is_open = is_last and role == "assistant" and item.status == "in_progress"
    return Message(role, item.text, is_open)


def _is_cut_off(item: InputItem) -> bool:
    """Return whether an answer that a client sends again was interrupted."""
    return item.type == "message" and item.role == "assistant" and item.status == "incomplete"
