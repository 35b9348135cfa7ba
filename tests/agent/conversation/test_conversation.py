"""A conversation's turns: answered, steered, stopped, queued; a real server, a scripted model."""

import asyncio
import os
from collections.abc import Callable

from tests.agent.conversation.talking import Face
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.events.base import Failed
from vivace.agent.events.turn import AttemptAbandoned, TurnEnded
from vivace.config import Settings
from vivace.errors import BUSY, FAILED, RequestRefused

Begin = Callable[..., Conversation]
SLOW = {"step_ms": 5}


async def test_a_question_is_answered(begin: Begin, face: Face) -> None:
    """The answer's text, the turn's end and the response to go on from are there."""
    talk = begin()
    turn = await talk.send("What is this?")
    assert (turn.status, turn.answer, turn.number) == ("completed", "Hello there.", 1)
    assert turn.response_id.startswith("resp_")
    assert face.said == "Hello there."


async def test_the_second_turn_goes_on_from_the_first(begin: Begin) -> None:
    """The log only grows: the second question's log begins with the first one's."""
    talk = begin()
    first = await talk.send("What is this?")
    second = await talk.send("And that?")
    added = second.total_tokens - first.total_tokens
    assert len("And that?Hello there.") < added < 80  # bytes: the message, the answer and their frames
    assert second.status == "completed"


async def test_steering_keeps_the_partial_and_marks_it(begin: Begin, face: Face) -> None:
    """What was said before the steer is kept, marked as abandoned, and the steer is answered."""
    talk = begin({"in French": "Bonjour.", "long": "beer " * 200, "": "Hello."}, **SLOW)
    sent = asyncio.create_task(talk.send("Tell me something long"))
    await face.until(lambda: len(face.said) > 20)
    await talk.steer("in French")
    turn = await sent
    (abandoned,) = face.seen(AttemptAbandoned)
    assert turn.attempts[0].is_abandoned
    assert len(turn.attempts[0].text) == abandoned.chars > 20
    assert (abandoned.steer, turn.answer, turn.status) == ("in French", "Bonjour.", "completed")


async def test_stopping_keeps_the_partial(begin: Begin, face: Face) -> None:
    """A stopped answer ends as it is, and the next turn goes on behind it."""
    talk = begin({"next": "Fine.", "long": "beer " * 200}, **SLOW)
    sent = asyncio.create_task(talk.send("Tell me something long"))
    await face.until(lambda: len(face.said) > 20)
    talk.stop()
    turn = await sent
    assert turn.status == "stopped"
    assert turn.answer == face.said
    assert (await talk.send("What next?")).answer == "Fine."


async def test_queued_messages_follow(begin: Begin, face: Face) -> None:
    """What is queued while a turn runs, and changed there, is sent after it; what is removed is not."""
    talk = begin({"third": "Three.", "other": "Other.", "long": "beer " * 50}, **SLOW)
    sent = asyncio.create_task(talk.send("Tell me something long"))
    await face.until(lambda: len(face.said) > 5)
    changed, removed = talk.queue.add("What is the second?"), talk.queue.add("Is it gone?")
    talk.queue.add("What is the third?")
    talk.queue.change(changed.id, "What is the other?")
    talk.queue.remove(removed.id)
    assert (await sent).answer == "Three."
    assert [turn.text for turn in talk.turns] == [
        "Tell me something long",
        "What is the other?",
        "What is the third?",
    ]
    assert talk.queue.messages == ()


async def test_a_steer_that_comes_too_late_is_sent(begin: Begin) -> None:
    """When the turn is over, what should have steered it is the next turn, and not lost."""
    talk = begin({"French": "Bonjour.", "": "Hello."})
    await talk.send("What is this?")
    await talk.steer("And what is it in French?")
    assert [turn.answer for turn in talk.turns] == ["Hello.", "Bonjour."]


async def test_steers_at_any_moment_are_answered(begin: Begin, face: Face) -> None:
    """Whenever a steer comes, while the turn begins, runs or ends: it is answered in the end, once."""
    talk = begin({"French": "Bonjour.", "": "Hello there."}, step_ms=1)
    for pieces in range(0, 12, 2):
        face.events.clear()
        before = len(talk.turns)
        sent = asyncio.create_task(talk.send("What is this?"))
        await face.until(lambda pieces=pieces: bool(face.events) and len(face.said) >= pieces)  # type: ignore[misc]
        await talk.steer("And what is it in French?")
        await sent
        await face.until(lambda: not talk.is_running)
        answers = [attempt.text for turn in talk.turns[before:] for attempt in turn.attempts]
        assert answers[-1] == "Bonjour.", answers
        assert talk.queue.messages == ()
        await talk.rewind(talk.turns[before].number)


async def test_stopping_leaves_the_queue(begin: Begin, face: Face) -> None:
    """What is queued is neither sent nor lost when the turn is stopped."""
    talk = begin({"long": "beer " * 200}, **SLOW)
    sent = asyncio.create_task(talk.send("Tell me something long"))
    await face.until(lambda: len(face.said) > 5)
    talk.queue.add("And then?")
    talk.stop()
    await sent
    assert [message.text for message in talk.queue.messages] == ["And then?"]
    assert len(talk.turns) == 1


async def test_a_failed_turn_is_shown_and_ends(begin: Begin, face: Face) -> None:
    """An unknown model fails the turn with words, and the conversation goes on with another one."""
    talk = begin()
    known = talk.model
    talk.model = "no-such-model"
    turn = await talk.send("What is this?")
    assert turn.status == "failed"
    assert "no-such-model" in face.seen(Failed)[0].message
    assert face.seen(TurnEnded)[0].status == "failed"
    talk.model = known
    assert (await talk.send("What is this?")).status == "completed"


async def test_a_full_disk_ends_the_turn_with_words(begin: Begin, face: Face) -> None:
    """What cannot be written down is not shown; that the turn failed is."""
    talk = begin({"long": "beer " * 200}, **SLOW)
    sent = asyncio.create_task(talk.send("Tell me something long"))
    await face.until(lambda: len(face.said) > 20)
    file = talk._transcript
    before, file._fd = file._fd, os.open("/dev/full", os.O_WRONLY)
    turn = await sent
    os.close(file._fd)
    file._fd = before
    assert (turn.status, face.seen(Failed)[0].code) == ("failed", "write_problem")
    assert face.said == turn.answer
    assert (await talk.send("Tell me something long")).status == "completed"


async def test_nothing_said_leaves_nothing_behind(begin: Begin, served: Settings) -> None:
    """The file is made with the first turn."""
    talk = begin()
    await talk.close()
    assert not conversations_dir(served).joinpath(f"{talk.id}.jsonl").exists()


def test_a_full_server_is_busy() -> None:
    """A request that is refused because of all the others ends with 75: try again later."""
    assert RequestRefused("No.", status=429).exit_code == BUSY
    assert RequestRefused("No.").exit_code == FAILED
