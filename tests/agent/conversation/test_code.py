"""Questions that mention no file, and the code that the model reads with them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.agent.edits.test_flow import ANSWER, OLD
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.opening import resume_conversation
from vivace.agent.events.talk import PromptWarmed
from vivace.agent.events.turn import CodePiece, CodeRead
from vivace.config import Settings

Begin = Callable[..., Conversation]
REPLIES = {
    "You locate code": "`show`",
    "Task: ": ANSWER,
    "title.upper())\n```": "I read the new code.",
    "print(task.title)\n```": "I read the old code.",
    "": "I read no code.",
}


@pytest.fixture
def task(folder: Path) -> Path:
    file = folder / "task.py"
    file.write_text(OLD)
    return file


def read(face: Face) -> list[str]:
    return [piece.label for event in face.seen(CodeRead) for piece in event.pieces]


@pytest.mark.usefixtures("task")
async def test_a_question_brings_what_it_names(begin: Begin, face: Face) -> None:
    """The unit is shown and goes into the prompt once; what is no question about code brings none."""
    talk = begin(REPLIES)
    assert (await talk.send("what is a list?")).answer == "I read no code."
    assert (await talk.send("what does `show` do?")).answer == "I read the old code."
    assert read(face) == ["task.py: show"]
    await talk.send("and why does `show` do so?")
    assert len(face.seen(CodeRead)) == 1


@pytest.mark.usefixtures("task")
async def test_a_question_after_an_edit_brings_the_new_text(begin: Begin, face: Face) -> None:
    """The file's name in plain words is enough after an edit, and the model reads the file as it is now."""
    talk = begin(REPLIES)
    await talk.send("make @task.py:show shout")
    assert (await talk.send("what does the task file do?")).answer == "I read the new code."
    assert read(face) == ["task.py"]


@pytest.mark.usefixtures("task")
async def test_a_draft_is_read_with_its_code(begin: Begin, face: Face) -> None:
    """While the question is typed, the code that it names is prefilled with it; the context counts it."""
    talk = begin(REPLIES)
    question = "what does `show` do?"
    await talk.prefill(question)
    await face.until(lambda: bool(warm := face.seen(PromptWarmed)) and warm[-1].warm_tokens > 0)
    warm = face.seen(PromptWarmed)[-1]
    assert warm.warm_tokens == warm.prompt_tokens
    assert not face.seen(CodeRead)  # nothing was asked yet
    counted = await talk.context(question)
    assert [part.name for part in counted.parts] == ["instructions", "code", "next"]
    assert counted.parts[1].text == "task.py: show"
    assert counted.used_tokens == warm.prompt_tokens
    turn = await talk.send(question)
    opening = turn.total_tokens - turn.answer_tokens - counted.used_tokens
    assert 0 <= opening <= len("<|im_start|>assistant\n")
    assert (await talk.context()).parts[1].text == f"task.py: show + {question}"


@pytest.mark.usefixtures("task")
async def test_a_resumed_conversation_knows_what_was_read(begin: Begin, face: Face, served: Settings) -> None:
    """The code is a part of the transcript: it is neither read twice nor lost when all is told anew."""
    talk = begin(REPLIES)
    await talk.send("what does `show` do?")
    await talk.close()
    async with resume_conversation(served.having(model=talk.model), talk.id, face) as again:
        (piece,) = again.turns[0].code
        assert (piece.path, piece.unit, piece.by) == ("task.py", "show", "name")
        assert isinstance(piece, CodePiece)
        await again.send("and why does `show` do so?")
        assert len(face.seen(CodeRead)) == 1
