"""A question, perhaps about files, answered as it is written.

Owns how files go into the prompt, and the order of what is shown. Does not own the screen (`presenter`) nor
the connection (`model`).
"""

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.languages import fence_tag_for
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.events.turn import (
    NO_MEMORY,
    AnswerGrew,
    AttemptStarted,
    MemoryUsed,
    TimesMeasured,
    TurnTimes,
    WritingEnded,
)
from vivace.agent.memory.recall import NOTHING, Memory
from vivace.agent.model import Model
from vivace.agent.presenter import Presenter
from vivace.agent.prompting import Message, read_prompt, user
from vivace.errors import UsageError

MAX_ANSWER_TOKENS = 2048


@dataclass(frozen=True)
class Question:
    messages: list[Message]
    memory: MemoryUsed = NO_MEMORY
    asked_at_s: float = field(default_factory=time.perf_counter)  # when the user pressed Enter


def read_question(
    question: str, paths: Sequence[Path], memory: Memory | None = None, *, judged: Sequence[Path] = ()
) -> Question:
    """Read the files into the prompt. What is wrong with them is raised here, before a model is needed.

    The files come before the question: the next question about them finds them in the KV. `judged`: where the
    paths were judged to lead, if somebody did; else they are the user's own.
    """
    if not question.strip():
        raise UsageError("The question is empty.", 'Ask something: vivace ask "QUESTION" [PATH…].')
    recalled = memory.recall(question, paths) if memory else NOTHING
    parts = [recalled.rules, *map(_fenced, paths, judged or repeat(None)), recalled.reminder, question]
    content = "\n\n".join(filter(None, parts))
    return Question([*read_prompt("ask"), user(content)], recalled.used())


async def run_ask(question: Question, model: Model, presenter: Presenter) -> None:
    """Let the model answer, and show it as it comes."""
    turns_before, first_token_ms = len(model.waterfalls), 0.0
    if question.memory.in_words:
        presenter.show(question.memory)
    presenter.show(AttemptStarted())
    try:
        async with aclosing(model.write(question.messages, max_tokens=MAX_ANSWER_TOKENS)) as deltas:
            async for delta in deltas:
                first_token_ms = first_token_ms or (time.perf_counter() - question.asked_at_s) * 1e3
                presenter.show(AnswerGrew(delta))
    finally:
        presenter.show(WritingEnded())
    turns = tuple(TurnTimes.of("answer", each) for each in model.waterfalls[turns_before:])
    presenter.show(TimesMeasured(model.name, turns, first_token_ms))


def _fenced(path: Path, judged: Path | None) -> str:
    text = read_source(path, judged).text
    fence = fence_for(text)
    return f"{path}\n{fence}{fence_tag_for(path)}\n{text}{fence}"
