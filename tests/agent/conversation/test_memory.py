"""Instruction files and notes in a conversation: told once, shown when used, exact while one types."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING, Face, read, write
from tests.agent.edits.test_flow import OLD
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.message.prompt import next_input
from vivace.agent.conversation.opening import resume_conversation
from vivace.agent.events.talk import PromptWarmed
from vivace.agent.events.turn import MemoryUsed
from vivace.agent.memory.notes import NoteStore
from vivace.config import Settings

Begin = Callable[..., Conversation]
REPLIES = {
    "Speak Latin.": "I speak Latin.",
    "Never sleep.": "I read the new rules.",
    "Be kind.": "I am kind.",
    "pool size is 8": "It is 8.",
    "": "I know nothing.",
}


@pytest.fixture
def rules(folder: Path) -> Path:
    file = folder / "AGENTS.md"
    file.write_text("Be kind.")
    return file


def used(face: Face) -> list[str]:
    return [event.names for event in face.seen(MemoryUsed)]


async def test_rules_are_told_once_and_again_when_they_change(begin: Begin, face: Face, rules: Path) -> None:
    """The first message brings AGENTS.md; the second does not; a changed file is told again."""
    talk = begin(REPLIES)
    assert (await talk.send("hello?")).answer == "I am kind."
    await talk.send("and now?")
    assert used(face) == ["AGENTS.md"]
    write(rules, "Never sleep.")
    assert (await talk.send("why?")).answer == "I read the new rules."
    assert used(face) == ["AGENTS.md", "AGENTS.md"]


@pytest.mark.usefixtures("rules")
async def test_a_mention_brings_the_rules_of_its_folder(begin: Begin, face: Face, folder: Path) -> None:
    """The nearest file is told with the first message that points below it."""
    (folder / "src").mkdir()
    (folder / "src" / "AGENTS.md").write_text("Speak Latin.")
    (folder / "src" / "a.py").write_text("a = 1\n")
    talk = begin(REPLIES)
    await talk.send("hello?")
    assert (await talk.send("what is @src/a.py?")).answer == "I speak Latin."
    assert used(face) == ["AGENTS.md", "src/AGENTS.md"]


async def test_a_note_is_found_by_words_and_shown(
    begin: Begin, face: Face, folder: Path, served: Settings
) -> None:
    """A note that fits goes with the message, is named on the screen, and is not told twice."""
    talk = begin(REPLIES)
    NoteStore(served.state_dir, folder).add("The pool size is 8, not 4.")
    assert (await talk.send("hello?")).answer == "I know nothing."
    assert (await talk.send("how large is the pool?")).answer == "It is 8."
    await talk.send("is the pool large?")
    assert used(face) == ["1 note"]
    assert "The pool size is 8" in face.seen(MemoryUsed)[0].in_words
    assert talk.turns[1].memory.notes == ("The pool size is 8, not 4.",)


@pytest.mark.usefixtures("rules")
async def test_a_draft_is_read_with_what_is_remembered(
    begin: Begin, face: Face, folder: Path, served: Settings
) -> None:
    """What is prefilled while one types is what is sent: the context counts it to the token."""
    NoteStore(served.state_dir, folder).add("The pool size is 8.")
    talk = begin(REPLIES)
    question = "how large is the pool?"
    await talk.prefill(question)
    await face.until(lambda: bool(warm := face.seen(PromptWarmed)) and warm[-1].warm_tokens > 0)
    warm = face.seen(PromptWarmed)[-1]
    counted = await talk.context(question)
    assert [part.name for part in counted.parts] == ["instructions", "memory", "next"]
    assert counted.parts[1].text == "AGENTS.md, 1 note"
    assert counted.used_tokens == warm.prompt_tokens
    turn = await talk.send(question)
    opening = turn.total_tokens - turn.answer_tokens - counted.used_tokens
    assert 0 <= opening <= len("<|im_start|>assistant\n")


@pytest.mark.usefixtures("rules")
async def test_a_resumed_conversation_knows_what_was_told(begin: Begin, face: Face, served: Settings) -> None:
    """The transcript remembers which files were told; a summary begins a log, which is told again."""
    talk = begin(REPLIES)
    await talk.send("hello?")
    await talk.close()
    async with resume_conversation(served.having(model=talk.model), talk.id, face) as again:
        await again.send("and now?")
        assert used(face) == ["AGENTS.md"]
        await again.compact()
        await again.send("and then?")
        assert used(face) == ["AGENTS.md", "AGENTS.md"]


async def test_an_edit_is_told_the_rules_of_its_file(begin: Begin, face: Face, task: Path) -> None:
    """The rewrite reads AGENTS.md, and says so."""
    (task.parent / "AGENTS.md").write_text("Keep it loud.")
    talk = begin({"You locate code": "`show`", "Keep it loud.": EDITING["Task: "], "": "nothing"})
    turn = await talk.send("make @task.py:show shout", kind="edit")
    assert turn.edits[0].outcome == "applied"
    assert used(face) == ["AGENTS.md"]
    assert read(task) != OLD


async def test_without_memory_the_prompt_is_what_it_was(begin: Begin, face: Face) -> None:
    """Nothing remembered: the request has the message's own words only, and nothing is shown."""
    talk = begin(REPLIES)
    request = await talk._work.requests.next_request("hello?", ())
    assert [item["content"] for item in request.body["input"]][1:] == ["hello?"]
    assert next_input(talk.history, await talk._work.requests.asked("hello?", ())) == request.body["input"]
    await talk.send("hello?")
    assert not face.seen(MemoryUsed)
