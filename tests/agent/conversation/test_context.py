"""What is in the prompt, counted: against the real tokenizer of a small model, whose text is scripted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.edits.test_flow import ANSWER, NEW, OLD
from vivace.agent.conversation.context import ContextUse
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.message.relevant_code import BUDGET_TOKENS, read_piece
from vivace.agent.prompting import read_prompt
from vivace.models.tokenizer import GgufTokenizer

Begin = Callable[..., Conversation]
REPLIES = {
    "You locate code": "`show`",
    "Task: ": ANSWER,
    "Summarise our": "It was about show and a naïve café.",
    "why": "Because of the café: naïve, isn't it?\n\n```python\nx = 1\n```",
    "": "It prints the title.",
}


class ChatML:
    """The chat format of the small model, written down a second time, and counted."""

    def __init__(self, tokenizer: GgufTokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def message(self, role: str, content: str, *, is_first: bool = False) -> int:
        """Return the tokens of a whole message; a line break stands before all but the first."""
        return (0 if is_first else self.text("\n")) + 2 + self.text(f"{role}\n{content}")

    def opening(self) -> int:
        """Return the tokens of the beginning of an answer."""
        return self.text("\n") + 1 + self.text("assistant\n")


@pytest.fixture
def chat(smol: Path) -> ChatML:
    return ChatML(GgufTokenizer(smol))


@pytest.fixture
def talk(begin: Begin, folder: Path, smol: Path) -> Conversation:
    (folder / "task.py").write_text(OLD)
    return begin(REPLIES, vocabulary=str(smol))


def counts(use: ContextUse) -> dict[str, int]:
    return {part.name: part.tokens for part in use.parts}


async def test_every_part_is_counted_to_the_token(talk: Conversation, chat: ChatML) -> None:
    """A mention, an edit, code that was found, a note and a draft: each as the tokenizer says."""
    await talk.send("What does @task.py do?")
    await talk.send("make @task.py:show shout")
    talk.note("Be brief.")
    await talk.send("and why `show`?")
    counted = counts(await talk.context("why now?"))
    edit = talk.turns[1]
    mentioned = f"task.py\n```python\n{OLD}```\n\nWhat does @task.py do?"
    told = f"task.py:show\n```python\n{NEW}```\n\n{edit.text}"
    report = f"I changed `show` in {edit.edits[0].path}:\n```diff\n{edit.edits[0].diff.rstrip()}\n```"
    code = read_piece(talk.turns[2].code[0], talk.folder)
    asked = f"(I accepted that change.)\n\nBe brief.\n\n{code}\n\nand why `show`?"
    between = [chat.message("user", told), chat.message("assistant", report), chat.message("user", asked)]
    assert counted == {
        "instructions": chat.message("system", read_prompt("ask")[0]["content"], is_first=True),
        "message 1": chat.message("user", mentioned) + chat.opening(),
        "answer 1": chat.text("It prints the title.") + 1,
        "message 3": sum(between) + chat.opening(),
        "answer 3": chat.text(REPLIES["why"]) + 1,
        "next": chat.message("user", "why now?"),
    }


async def test_code_and_a_summary_are_counted_to_the_token(talk: Conversation, chat: ChatML) -> None:
    """After a compaction the summary stands for the turns; the code of the draft is a part of its own."""
    await talk.send("What does it do?")
    compacted = await talk.compact()
    draft = "why `show`?"
    use = await talk.context(draft)
    (piece,) = [part for part in use.parts if part.name == "code"]
    with_code = f"task.py: show\n```python\n{OLD.rstrip()}\n```\n\n{draft}"
    assert counts(use) == {
        "instructions": chat.message("system", read_prompt("ask")[0]["content"], is_first=True),
        "summary": chat.message("user", compacted.summary) + chat.message("assistant", "Understood."),
        "code": chat.message("user", with_code) - chat.message("user", draft),
        "next": chat.message("user", draft),
    }
    assert piece.text == "task.py: show"
    assert piece.tokens <= BUDGET_TOKENS
