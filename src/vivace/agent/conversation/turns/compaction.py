"""A summary that stands for the turns before it, when they take too much of the window.

Owns what the summary keeps: the model's own account, the user's messages word for word, and what was decided
about each change. Does not own when it is made (`conversation`).
"""

from typing import Any

from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.prompting import read_prompt
from vivace.client.responses import ResponsesClient

MAX_SUMMARY_TOKENS = 700
OWN_CHARS = 4000  # of the user's own words, the latest first
MESSAGE_CHARS = 600  # of one message
WINDOW_SHARE = 0.75  # of the window, above which the conversation is compacted unasked
CHARS_PER_TOKEN = 3


def is_due(history: History, content: str, window_tokens: int) -> bool:
    """Return whether the next message would come too close to the window's end."""
    last = history.compaction.turn if history.compaction else 0
    said = max((turn.total_tokens for turn in history.turns if turn.number > last), default=0)
    return bool(window_tokens and said) and (
        said + len(content) // CHARS_PER_TOKEN > WINDOW_SHARE * window_tokens
    )


async def summarize(client: ResponsesClient, history: History, request: dict[str, Any], *, lane: str) -> str:
    """Let the model tell what was said, and put the user's own words and decisions beside it."""
    body = request | {"store": False, "max_output_tokens": MAX_SUMMARY_TOKENS}
    said = (await client.complete(body, lane=lane)).output_text.strip()
    parts = ["This is what we have talked about so far.", said]
    parts.append("My messages, word for word:\n" + "\n".join(own_words(history.turns)))
    if decided := decisions(history.turns):
        parts.append("What became of your changes:\n" + "\n".join(decided))
    return "\n\n".join(parts)


def compact_prompt() -> str:
    """Return what the model is asked for."""
    (asked,) = read_prompt("compact")
    return asked["content"]


def own_words(turns: list[Turn]) -> list[str]:
    """Return the user's messages and steers, oldest first; the latest fit, whatever there is."""
    steers = [[attempt.steer for attempt in turn.attempts if attempt.steer] for turn in turns]
    messages = [text for turn, more in zip(turns, steers, strict=True) for text in (turn.text, *more)]
    kept: list[str] = []
    room = OWN_CHARS
    for text in reversed(messages):
        line = f"- {text if len(text) <= MESSAGE_CHARS else text[:MESSAGE_CHARS] + ' …'}"
        if len(line) > room and kept:
            break
        kept.append(line)
        room -= len(line)
    return kept[::-1]


def decisions(turns: list[Turn]) -> list[str]:
    """Return one line for each change: what, where, and what the user decided."""
    return [
        f"- {edit.path}, `{edit.unit}`: {edit.outcome}" + (f" ({edit.reason})" if edit.reason else "")
        for turn in turns
        for edit in turn.edits
        if edit.outcome in ("applied", "undone", "rejected")
    ]
