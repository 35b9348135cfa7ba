"""A model that thinks, in a conversation: the effort says whether and how long, and it can be cut short."""

import asyncio
from collections.abc import Callable

from tests.agent.conversation.talking import Face
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.message.prompt import told
from vivace.agent.conversation.opening import conversations_dir, resume_conversation
from vivace.agent.conversation.transcript.reading import read_records
from vivace.agent.events.turn import ReasoningGrew, ResponseBegan
from vivace.config import Settings

REASONED = {"": "<think>\nHm, a secret.\n</think>\n\nThe answer."}
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


async def test_reasoning_is_shown_and_recorded_beside_the_answer(
    begin: Callable[..., Conversation], face: Face, served: Settings
) -> None:
    """It is told as such, is a line of the transcript, and is read back; the answer has nothing of it."""
    talk = begin(REASONED, family="qwen3")
    turn = await talk.send("why?")
    assert "".join(event.text for event in face.seen(ReasoningGrew)).strip() == "Hm, a secret."
    assert (turn.answer.strip(), turn.attempts[0].reasoning.strip()) == ("The answer.", "Hm, a secret.")
    lines = read_records(conversations_dir(served) / f"{talk.id}.jsonl")
    assert "".join(line.text for line in lines if isinstance(line, ReasoningGrew)).strip() == "Hm, a secret."
    assert "<summary>Thinking</summary>\n\nHm, a secret." in talk.export()
    await talk.close()
    async with resume_conversation(served.having(model=talk.model), talk.id, face) as again:
        assert again.turns[0] == turn


async def test_reasoning_is_not_told_again(begin: Callable[..., Conversation]) -> None:
    """Where the server has lost the conversation, the model is told what was said, not what was thought."""
    talk = begin(REASONED, family="qwen3")
    turn = await talk.send("why?")
    assert "secret" not in str(list(told([turn], talk.folder)))
