"""A model that thinks, in a conversation: the effort says whether and how long, and it can be cut short."""

import asyncio
from collections.abc import Callable

from tests.agent.conversation.talking import Face
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.events import ResponseBegan

THOUGHT = "<think>\n" + "answer " * 500


async def test_answer_now_turns_thinking_into_an_answer(
    begin: Callable[..., Conversation], face: Face
) -> None:
    """Nothing of the thinking is said; from then on the model answers, in the same turn."""
    talk = begin({"": THOUGHT}, family="qwen3", step_ms=2)
    turn = asyncio.create_task(talk.send("why?"))
    await face.until(lambda: bool(face.seen(ResponseBegan)))
    assert face.said == ""
    talk.answer_now()
    await face.until(lambda: "answer" in face.said)
    talk.stop()
    await turn
    assert len(face.seen(ResponseBegan)) == 1


async def test_low_effort_does_not_think(begin: Callable[..., Conversation], face: Face) -> None:
    """The effort of the conversation is told to the server."""
    talk = begin({"": THOUGHT}, family="qwen3", step_ms=2)
    talk.effort = "low"
    turn = asyncio.create_task(talk.send("why?"))
    await face.until(lambda: "answer" in face.said)
    talk.stop()
    await turn


async def test_answer_now_without_a_turn_does_nothing(begin: Callable[..., Conversation]) -> None:
    """The key may be pressed at any time."""
    begin().answer_now()
