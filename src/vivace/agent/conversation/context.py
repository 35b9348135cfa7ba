"""What is in the prompt, counted in tokens by the model's own tokenizer, against the window.

Owns the parts and their counts. The server counted most of them when it read them; the others are counted by
a prefill, which the next turn needs anyway. Does not own what is sent (`message.prompt`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vivace.agent.conversation.message.prompt import opening
from vivace.agent.conversation.transcript.history import History
from vivace.agent.events.turn import CodePiece
from vivace.agent.prompting import Message
from vivace.client.responses import ResponsesClient


@dataclass(frozen=True)
class ContextPart:
    name: str  # instructions, summary, message 3, answer 3, code, memory, next
    tokens: int
    text: str = ""  # how it begins


@dataclass(frozen=True)
class ContextUse:
    parts: tuple[ContextPart, ...]
    window_tokens: int  # 0 if it is not known

    @property
    def used_tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


@dataclass(frozen=True)
class NextRequest:
    """What would be sent now."""

    body: dict[str, Any]
    body_alone: dict[str, Any]  # the same without what was found for it
    additions: tuple["Addition", ...] = ()  # what was found for it, in the order in which it is counted


@dataclass(frozen=True)
class Addition:
    """Something that the model reads with a message although the user did not write it there."""

    name: str  # code or memory
    label: str
    body: dict[str, Any]  # with this and all additions before it


async def count_context(
    client: ResponsesClient, history: History, upcoming: NextRequest, *, window_tokens: int, lane: str
) -> ContextUse:
    """Count what the next request would put in front of the model."""

    async def count(body: dict[str, Any]) -> int:
        response = await client.prefill(body | {"store": False}, lane=lane)
        return response.usage.input_tokens if response.usage else 0

    async def count_items(items: list[Message]) -> int:
        return await count({"model": upcoming.body["model"], "input": items})

    began = opening(history.compaction)
    instructions = await count_items(opening(None))
    parts = [ContextPart("instructions", instructions, began[0]["content"])]
    before = instructions
    if history.compaction:
        before = await count_items(began)
        parts.append(ContextPart("summary", before - instructions, history.compaction.summary))
    if "previous_response_id" in upcoming.body:
        turns, before = _turn_parts(history, before)
        parts += turns
    counted = alone = await count(upcoming.body_alone)
    for addition in upcoming.additions:
        after = await count(addition.body)
        parts.append(ContextPart(addition.name, after - counted, addition.label))
        counted = after
    return ContextUse((*parts, ContextPart("next", max(0, alone - before))), window_tokens)


def _turn_parts(history: History, before: int) -> tuple[list[ContextPart], int]:
    """Return the messages and answers in the log, and the log's length behind them."""
    last = history.compaction.turn if history.compaction else 0
    parts: list[ContextPart] = []
    begins_at = before
    for turn in history.turns:
        if turn.number <= last or turn.kind != "question" or not turn.total_tokens:
            continue
        if turn.is_retold:  # the log began anew here
            parts, before = [], begins_at
        message = turn.total_tokens - turn.answer_tokens - before
        read = ["the turns before it"] if turn.is_retold else []
        read += [_labels(turn.code)] if turn.code else []
        read += [turn.memory.names] if turn.memory.names else []
        parts.append(ContextPart(f"message {turn.number}", message, " + ".join([*read, turn.text])))
        parts.append(ContextPart(f"answer {turn.number}", turn.answer_tokens, turn.answer))
        before = turn.total_tokens
    return parts, before


def _labels(code: Sequence[CodePiece]) -> str:
    return ", ".join(piece.label for piece in code)
