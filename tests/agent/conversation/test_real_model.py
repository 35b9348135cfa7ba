"""A conversation with two layers of a real model: nothing is prefilled twice, tokens are counted exactly."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face, write
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.opening import open_conversation, resume_conversation
from vivace.agent.conversation.turns import requests
from vivace.agent.conversation.turns.editing import draft_messages
from vivace.agent.events.talk import PromptWarmed
from vivace.agent.events.turn import AttemptAbandoned, TimesMeasured
from vivace.agent.prompting import begun_answer
from vivace.config import Settings
from vivace.protocol.shapes.events import Waterfall

SPARE_TOKENS = 12  # of the chat format, around a message


@pytest.fixture
async def talk(
    shallow_served: Settings, folder: Path, face: Face, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Conversation]:
    monkeypatch.setattr(requests, "MAX_ANSWER_TOKENS", 60)  # two layers find no end
    (folder / "add.py").write_text("def add(a, b):\n    return a + b\n")
    async with open_conversation(shallow_served, folder, face) as talk:
        yield talk


def last_times(face: Face) -> Waterfall:
    return face.seen(TimesMeasured)[-1].turns[-1]


async def test_every_turn_prefills_its_own_message_only(
    talk: Conversation, face: Face, shallow_served: Settings
) -> None:
    """Questions, a steer, a question beside and a resumption: the log is read once."""
    first = await talk.send("What does @add.py do?")
    assert first.status in ("completed", "cut")
    counted = await talk.context("And why?")
    second = await talk.send("And why?", kind="question")
    assert last_times(face).cached_tokens >= first.total_tokens - 1
    assert last_times(face).new_tokens <= SPARE_TOKENS
    read = second.total_tokens - second.answer_tokens
    assert 0 <= read - counted.used_tokens <= SPARE_TOKENS  # the answer's opening

    said = len(face.said)
    sent = asyncio.create_task(talk.send("Count from one to a thousand.", kind="question"))
    await face.until(lambda: len(face.said) > said + 10)
    await talk.steer("Stop counting, say only yes.")
    third = await sent
    assert face.seen(AttemptAbandoned)[0].chars > 0
    assert last_times(face).new_tokens <= SPARE_TOKENS + 40  # the steer, and what had been asked

    assert await talk.btw("What is two plus two?")
    await talk.close()
    async with resume_conversation(shallow_served, talk.id, face) as again:
        fourth = await again.send("Thanks, and why?", kind="question")
        assert last_times(face).cached_tokens >= third.total_tokens - 1
        assert fourth.total_tokens > third.total_tokens


async def test_a_draft_is_warm_when_it_is_sent(talk: Conversation, face: Face) -> None:
    """What was read while it was typed, the mentioned file included, is not read again."""
    question = "What does @add.py do?"
    await talk.prefill(question)
    await face.until(lambda: bool(seen := face.seen(PromptWarmed)) and seen[-1].warm_tokens > 0)
    warm = face.seen(PromptWarmed)[-1]
    assert warm.warm_tokens == warm.prompt_tokens
    await talk.send(question)
    assert last_times(face).new_tokens <= SPARE_TOKENS


@pytest.mark.parametrize("mention", ["@add.py", "@add.py:add"])
async def test_an_edit_is_warm_when_it_is_sent(
    talk: Conversation, face: Face, folder: Path, mention: str
) -> None:
    """The outline or the unit that an edit mentions was read while the instruction was typed."""
    write(folder / "add.py", "def add(a, b):\n    return a + b\n\n\ndef other():\n    pass\n")
    instruction = f"add a docstring to {mention}"
    await talk.prefill(instruction)
    await face.until(lambda: bool(seen := face.seen(PromptWarmed)) and seen[-1].warm_tokens > 0)
    model = await talk.connection.model(talk.model)
    messages = draft_messages(folder, instruction, mention.removeprefix("@"))
    await model.score([*messages, begun_answer("`")], ["add`"])
    assert model.waterfalls[-1].new_tokens <= SPARE_TOKENS
    assert model.waterfalls[-1].cached_tokens > 100


async def test_an_edit_that_names_no_file_is_warm_when_it_is_sent(
    talk: Conversation, face: Face, folder: Path
) -> None:
    """Where words alone find the place, its rewrite's prompt is read while the instruction is typed."""
    write(folder / "add.py", "def add(a, b):\n    return a + b\n\n\ndef other():\n    pass\n")
    instruction = "other should return the number 1"
    await talk.prefill(instruction)
    await face.until(lambda: bool(seen := face.seen(PromptWarmed)) and seen[-1].warm_tokens > 0)
    model = await talk.connection.model(talk.model)
    messages = draft_messages(folder, instruction, "add.py:other")
    await model.score([*messages, begun_answer("```python\ndef other")], ["("])
    assert model.waterfalls[-1].new_tokens <= SPARE_TOKENS
    assert model.waterfalls[-1].cached_tokens > 100
