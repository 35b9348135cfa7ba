"""What was said before: asked beside, forked, compacted, counted, resumed, exported."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING, Face, write
from tests.agent.edits.test_flow import OLD
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.opening import conversations_dir, last_conversation, resume_conversation
from vivace.agent.conversation.transcript.file import encode_record
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.base import SCHEMA
from vivace.agent.events.talk import Compacted, PromptWarmed, SideGrew
from vivace.agent.events.turn import HistoryReplayed
from vivace.config import Settings
from vivace.errors import ConversationBusy, ConversationNotFound

Begin = Callable[..., Conversation]


async def test_a_question_beside_leaves_the_talk_alone(begin: Begin, face: Face) -> None:
    """It is answered with what was said before, also while a turn runs, and the talk does not know it."""
    talk = begin({"beside": "Beside.", "next": "Next.", "long": "beer " * 100, "": "Hello."}, step_ms=3)
    first = await talk.send("What is this?")
    sent = asyncio.create_task(talk.send("Tell me something long"))
    await face.until(lambda: "beer" in face.said)
    assert await talk.btw("what is beside?") == "Beside."
    talk.stop()
    await sent
    assert "".join(event.text for event in face.seen(SideGrew)) == "Beside."
    assert len(talk.turns) == 2
    assert talk.turns[0] == first
    assert (await talk.send("What next?")).answer == "Next."


async def test_a_fork_goes_on_by_itself(begin: Begin) -> None:
    """Both have what was said before, and each has its own turns behind it."""
    talk = begin({"left": "Left.", "right": "Right.", "": "Hello."})
    await talk.send("What is this?")
    async with await talk.fork() as other:
        assert (await other.send("What is left?")).answer == "Left."
        assert (await talk.send("What is right?")).answer == "Right."
        assert [turn.text for turn in other.turns] == ["What is this?", "What is left?"]
        assert [turn.text for turn in talk.turns] == ["What is this?", "What is right?"]
        assert other.history.forked_from == talk.id


async def test_compacting_keeps_the_users_words(begin: Begin, face: Face) -> None:
    """The next log begins with the summary and the user's own words, and is shorter; undone, it is not."""
    talk = begin({"Summarise our": "We spoke of beer.", "What now": "Hello.", "long": "beer " * 300})
    before = await talk.send("Tell me something long")
    compacted = await talk.compact()
    assert "We spoke of beer." in compacted.summary
    assert "Tell me something long" in compacted.summary
    assert face.seen(Compacted) == [compacted]
    after = await talk.send("What now?")
    assert after.total_tokens < before.total_tokens
    await talk.rewind(after.number)
    await talk.undo_compact()
    assert (await talk.send("What now?")).total_tokens > before.total_tokens


async def test_a_full_window_is_compacted_unasked(begin: Begin, face: Face) -> None:
    """Before the limit the conversation is compacted, and the turn is answered."""
    talk = begin({"Summarise our": "Beer.", "long": "beer " * 60}, context_tokens=1800)
    for _ in range(6):
        assert (await talk.send("Tell me something long")).status == "completed"
    assert face.seen(Compacted)


async def test_the_context_is_counted_to_the_token(begin: Begin, folder: Path) -> None:
    """The parts add up to what the server counts when the message is sent."""
    (folder / "a.py").write_text("x = 1\n")
    talk = begin()
    await talk.send("What is this?")
    counted = await talk.context("And @a.py?")
    assert [part.name for part in counted.parts] == ["instructions", "message 1", "answer 1", "next"]
    turn = await talk.send("And what is @a.py?")
    more = await talk.context()
    assert counted.window_tokens > counted.used_tokens > 0
    assert more.used_tokens >= turn.total_tokens
    assert all(part.tokens > 0 for part in more.parts[:-1])


async def test_a_draft_is_read_while_it_is_typed(begin: Begin, face: Face) -> None:
    """The events say how much is warm, up to all of it, and the message is answered as usual."""
    talk = begin()
    await talk.prefill("What is")
    await talk.prefill("What is this?")
    await face.until(lambda: bool(warm := face.seen(PromptWarmed)) and is_warm(warm[-1]))
    assert (await talk.send("What is this?")).answer == "Hello there."


def is_warm(event: PromptWarmed) -> bool:
    return event.warm_tokens == event.prompt_tokens > 0


async def test_a_conversation_is_resumed(begin: Begin, face: Face, served: Settings, folder: Path) -> None:
    """It goes on from the stored response with all turns; nobody else can have it open meanwhile."""
    talk = begin()
    first = await talk.send("What is this?")
    settings = served.having(model=talk.model)
    with pytest.raises(ConversationBusy):
        resume_conversation(settings, talk.id, face)
    await talk.close()
    assert last_conversation(settings, folder, pytest.fail) == talk.id
    async with resume_conversation(settings, talk.id, face) as again:
        assert again.turns[0] == first
        second = await again.send("And that?")
        assert second.total_tokens > first.total_tokens
    with pytest.raises(ConversationNotFound):
        resume_conversation(settings, "../x", face)


async def test_the_export_has_everything(begin: Begin, task: Path) -> None:
    """Questions, answers, diffs and decisions are in the Markdown."""
    write(task, OLD)
    talk = begin(EDITING)
    await talk.send("What is this?")
    await talk.send("make @task.py:show shout")
    exported = talk.export()
    for piece in ("What is this?", "Hello there.", "+    print(task.title.upper())", "Written."):
        assert piece in exported


def long_conversation(settings: Settings, folder: Path, turns: int) -> str:
    """Write the transcript of a conversation whose responses no server has; return its id."""
    began = talk_events.ConversationStarted(
        schema=SCHEMA, id="long", folder=str(folder), model=settings.model, at_s=1.0
    )
    file = conversations_dir(settings) / "long.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines: list[AnyRecord] = [began]
    for number in range(1, turns + 1):
        lines += [
            turn_events.TurnStarted(turn=number, text=f"What about {number}?"),
            turn_events.IntentDecided(kind="question", by="words"),
            turn_events.AttemptStarted(),
            turn_events.AnswerGrew(text=f"It is {number}."),
            turn_events.TurnEnded(turn=number, status="completed", response_id=f"resp_{number}"),
        ]
    file.write_bytes(b"".join(encode_record(line) + b"\n" for line in lines))
    return began.id


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_very_long_conversation_goes_on_without_its_responses(
    begin: Begin, face: Face, served: Settings, folder: Path, is_stored: bool
) -> None:
    """Of 6,000 turns the latest are told that fit, which is said; the next turn goes on from there."""
    replies = {"It is 6000.": "I know the latest.", "": "I know nothing."}
    settings = served.having(model=begin(replies).model)
    known = long_conversation(settings, folder, 6000)
    async with resume_conversation(settings, known, face) as talk:
        if not is_stored:
            for turn in talk.turns:
                turn.response_id = ""
        answered = await talk.send("What next?")
        assert (answered.status, answered.answer) == ("completed", "I know the latest.")
        retold = face.seen(HistoryReplayed)[-1]
        assert retold.first_turn == retold.left_out + 1 > 5000
        assert f"from turn {retold.first_turn} on" in retold.in_words
        counted = await talk.context()
        assert counted.parts[1].text == "the turns before it + What next?"
        assert all(part.tokens >= 0 for part in counted.parts)
        shown = len(face.seen(HistoryReplayed))
        assert (await talk.send("What then?")).status == "completed"
        assert len(face.seen(HistoryReplayed)) == shown
