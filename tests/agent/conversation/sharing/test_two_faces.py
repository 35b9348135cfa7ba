"""Two faces on one conversation: a real socket, a real server, a scripted model."""

import asyncio
import stat
from pathlib import Path

import pytest

from tests.agent.conversation.sharing.sharing import Share, agree
from tests.agent.conversation.talking import EDITING, Face, read, write
from tests.agent.edits.test_flow import NEW, OLD
from tests.agent.loop.working import call
from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.sharing.opening import open_in
from vivace.agent.conversation.sharing.places import socket_of
from vivace.agent.conversation.transcript.file import file_named
from vivace.agent.edits.conflict import TakeEdit
from vivace.agent.edits.proposal import Reject
from vivace.agent.events.edit import ConflictResolved, DiffGrew, EditApplied, EditProposed
from vivace.agent.events.talk import FacesChanged, ModelProgress, OptionsChanged, PromptWarmed
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.events.turn import AttemptAbandoned, TurnEnded
from vivace.agent.loop.calls import Approval
from vivace.agent.permissions.modes import mode_named
from vivace.errors import ConversationBusy, NothingToUndo

SLOW = {"step_ms": 5}


async def test_what_one_face_says_the_other_sees(share: Share, face: Face, other: Face) -> None:
    """A message of either face is a turn in both, with the same text in the same order."""
    held, attached = await share().pair(face, other)
    turn = await attached.send("What is this?")
    assert (turn.status, turn.answer) == ("completed", "Hello there.")
    await held.send("And that?")
    await other.until(lambda: len(other.seen(TurnEnded)) == 2)
    assert other.said == face.said == "Hello there." * 2
    await agree(held, attached, other)
    assert (held.is_held, attached.is_held) == (True, False)


async def test_both_faces_are_told_how_far_a_long_prompt_is_read(
    share: Share, face: Face, other: Face
) -> None:
    """The same words in both, and none any more when the answer begins."""
    held, _ = await share(prefill_token_ms=1.0, pass_tokens=64).pair(face, other)
    await held.send("What is this? " * 100)
    await other.until(lambda: bool(other.seen(TurnEnded)))
    *reading, last = [event.in_words for event in other.seen(ModelProgress)]
    assert last == ""
    assert reading
    assert all(words.startswith("reading: ") for words in reading)
    assert [*reading, last] == [event.in_words for event in face.seen(ModelProgress)]


async def test_each_face_knows_who_else_is_there(share: Share, face: Face, other: Face) -> None:
    """Both are told the other's name, a list shows both, and the holder is told when one leaves."""
    held, attached = await share().pair(face, other)
    assert face.seen(FacesChanged)[-1].others == held.others == ("browser",)
    await other.until(lambda: bool(other.seen(FacesChanged)))
    assert other.seen(FacesChanged)[-1].others == attached.others == ("terminal",)
    file = file_named(held.connection.settings, held.id)
    assert await open_in(file) == ("terminal", "browser")
    await attached.close()
    await face.until(lambda: face.seen(FacesChanged)[-1].others == ())


async def test_a_face_that_joins_in_the_middle_of_a_turn_misses_nothing(
    share: Share, face: Face, other: Face
) -> None:
    """It is shown the running turn from its start, and ends with the same records."""
    shared = share({"long": "beer " * 60, "": "Hello."}, **SLOW)
    held = await shared.open(face, shared.folder, "terminal")
    await held.send("What is this?")
    sent = asyncio.create_task(held.send("Tell me something long"))
    await face.until(lambda: len(face.said) > 30)
    attached = await shared.open(other, held.id, "browser")
    assert len(attached.turns) == 1
    turn = await sent
    await agree(held, attached, other)
    assert other.said == turn.answer


async def test_an_attached_face_steers_and_stops(share: Share, face: Face, other: Face) -> None:
    """A steer of the attached face abandons the answer in both; its stop ends the turn."""
    held, attached = await share({"in French": "Bonjour " * 300, "long": "beer " * 200}, **SLOW).pair(
        face, other
    )
    sent = asyncio.create_task(held.send("Tell me something long"))
    await other.until(lambda: len(other.said) > 20)
    await attached.steer("in French")
    await face.until(lambda: "Bonjour" in face.said)
    attached.stop()
    assert (await sent).status == "stopped"
    await agree(held, attached, other)
    assert [each.steer for each in other.seen(AttemptAbandoned)] == ["in French"]


async def test_both_steer_at_once(share: Share, face: Face, other: Face) -> None:
    """Both steers are heard, and both faces have the same turn in the end."""
    held, attached = await share({"French": "Bonjour.", "long": "beer " * 200}, **SLOW).pair(face, other)
    sent = asyncio.create_task(held.send("Tell me something long"))
    await other.until(lambda: len(other.said) > 20)
    await asyncio.gather(held.steer("in French"), attached.steer("and in French again"))
    await sent
    await held.wait_idle()
    await agree(held, attached, other)
    steers = " ".join(attempt.steer for turn in held.turns for attempt in turn.attempts)
    said = steers + " ".join(turn.text for turn in held.turns)
    assert "in French" in said
    assert "and in French again" in said


async def test_two_messages_at_once_are_one_turn_and_a_refusal(share: Share, face: Face, other: Face) -> None:
    """The second one is refused as busy, whoever sent it, and can be queued by either."""
    held, attached = await share({"long": "beer " * 50, "": "Fine."}, **SLOW).pair(face, other)
    sent = asyncio.create_task(held.send("Tell me something long"))
    await other.until(lambda: attached.is_running)
    with pytest.raises(ConversationBusy):
        await attached.send("And this?")
    attached.queue.add("And this?")
    await face.until(lambda: len(held.queue.messages) == 1)
    await sent
    await agree(held, attached, other)
    assert [turn.text for turn in attached.turns] == ["Tell me something long", "And this?"]
    assert attached.queue.messages == ()


class AskedFace(Face):
    """A face that is asked about a call and says nothing."""

    is_asked = False

    async def approve(self, asked: ApprovalAsked) -> Approval:
        del asked
        self.is_asked = True
        self._changed.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_call_is_refused_when_all_who_could_allow_it_have_left(share: Share, face: Face) -> None:
    """The holder's own face cannot ask, and the attached one goes away while it is asked."""
    other = AskedFace()
    edit = call("edit", path="task.py", old_text="x", new_text="y")
    shared = share({"": "Done."}, steps=[edit, "That was it."])
    held, attached = await shared.pair(face, other)
    held.policy = mode_named("ask").policy
    sent = asyncio.create_task(held.send("make x y"))
    await other.until(lambda: other.is_asked)
    await attached.close()
    async with asyncio.timeout(60):
        assert (await sent).refused_calls == 1


async def test_a_proposal_is_decided_by_the_attached_face(
    share: Share, face: Face, other: Face, task: Path
) -> None:
    """The diff grows in both; the first answer counts, and the holder's own question is closed by it."""
    face.is_thinking = True
    held, attached = await share(EDITING).pair(face, other)
    turn = await held.send("make @task.py:show shout")
    assert (turn.edits[0].outcome, read(task)) == ("applied", NEW)
    await agree(held, attached, other)
    ours, theirs = face.seen(EditProposed)[-1].proposal, other.seen(EditProposed)[-1].proposal
    assert [file.hunks for file in theirs.files] == [file.hunks for file in ours.files]
    assert [file.new_bytes for file in theirs.files] == [file.new_bytes for file in ours.files]
    assert other.seen(DiffGrew)[-1].rows == face.seen(DiffGrew)[-1].rows
    assert other.seen(EditApplied)[0].number == face.seen(EditApplied)[0].number
    undone = await attached.undo()
    assert undone.paths == (str(task),)
    with pytest.raises(NothingToUndo):
        await attached.undo()
    await agree(held, attached, other)


async def test_the_first_answer_closes_the_question_elsewhere(
    share: Share, face: Face, other: Face, task: Path
) -> None:
    """When the holder's face answers, the attached face's question is cancelled."""
    del task
    other.is_thinking = True
    face.decisions = [Reject("no")]
    held, attached = await share(EDITING).pair(face, other)
    await held.send("make @task.py:show shout")
    await other.until(lambda: other.cancelled == 1)
    await agree(held, attached, other)
    assert attached.turns[0].edits[0].outcome == "rejected"


async def test_a_conflict_is_resolved_by_the_attached_face(
    share: Share, face: Face, other: Face, task: Path
) -> None:
    """A file that changed meanwhile is asked about in both, with both texts."""
    face.is_thinking = True
    other.before_deciding = lambda: write(task, OLD.replace("print(task.title)", "log(task.title)"))
    other.resolutions = [TakeEdit()]
    held, attached = await share(EDITING).pair(face, other)
    await held.send("make @task.py:show shout")
    await agree(held, attached, other)
    (conflict,) = other.conflicts
    assert [row.text for row in conflict.file_rows if row.tag == "+"][-1].strip() == "log(task.title)"
    assert (other.seen(ConflictResolved)[0].choice, read(task)) == ("edit", NEW)


async def test_options_are_those_of_all_faces(share: Share, face: Face, other: Face) -> None:
    """Effort and model are set for the conversation by either face, and told to the other."""
    held, attached = await share().pair(face, other)
    attached.effort = "high"
    await face.until(lambda: held.effort == "high")
    assert face.seen(OptionsChanged)[-1].options.effort == "high"
    held.effort = "low"
    await other.until(lambda: attached.effort == "low")
    await attached.rename("Beer")
    assert held.title == "Beer"
    await agree(held, attached, other)


async def test_only_the_face_that_types_sees_how_warm_its_prompt_is(
    share: Share, face: Face, other: Face
) -> None:
    """A draft is prefilled for the face that types it."""
    held, attached = await share().pair(face, other)
    await attached.prefill("What is ")
    await other.until(lambda: bool(other.seen(PromptWarmed)))
    assert not face.seen(PromptWarmed)
    await held.prefill("What")
    await face.until(lambda: bool(face.seen(PromptWarmed)))


async def test_a_question_beside_and_its_end(share: Share, face: Face, other: Face) -> None:
    """The attached face asks beside the conversation, and counts its context."""
    held, attached = await share().pair(face, other)
    assert await attached.btw("What time is it?") == "Hello there."
    await attached.send("What is this?")
    assert (await attached.context("draft")).used_tokens == (await held.context("draft")).used_tokens


async def test_a_fork_of_an_attached_conversation_is_held_here(share: Share, face: Face, other: Face) -> None:
    """It has what was said, goes on alone, and other faces can join it."""
    shared = share()
    held, attached = await shared.pair(face, other)
    await held.send("What is this?")
    await agree(held, attached, other)
    forked = await attached.fork()
    shared.talks.append(forked)
    await forked.send("And that?")
    assert forked.is_held
    assert [len(talk.turns) for talk in (held, attached, forked)] == [1, 1, 2]


async def test_the_socket_is_this_users_alone(share: Share, face: Face, other: Face) -> None:
    """Its mode lets no other user in, and it is gone when the conversation is closed."""
    shared = share()
    held, _ = await shared.pair(face, other)
    path = socket_of(file_named(shared.settings, held.id))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for talk in reversed(shared.talks):
        await talk.close()
    assert not path.exists()
    assert list(conversations_dir(shared.settings).glob("*.sock")) == []


async def test_when_the_holder_closes_the_attached_face_goes_on(
    share: Share, face: Face, other: Face
) -> None:
    """It holds the conversation from then on, with all that was said, and a third face joins it there."""
    shared = share()
    held, attached = await shared.pair(face, other)
    await held.send("What is this?")
    await held.close()
    await other.until(lambda: other.talk is not attached)
    assert (other.talk.is_held, len(other.talk.turns)) == (True, 1)
    assert other.talk is not None
    shared.talks.append(other.talk)
    third = Face()
    joined = await shared.open(third, held.id, "editor")
    await joined.send("And that?")
    assert [turn.text for turn in other.talk.turns] == ["What is this?", "And that?"]
