"""Question or edit: the words decide what they can, the model's score the rest."""

import pytest

from tests.agent.conversation.message import intents
from vivace.agent.conversation.message.intent import decide_intent, intent_by_words
from vivace.agent.events.turn import IntentDecided, TurnKind
from vivace.agent.prompting import Message

LABELLED: list[tuple[TurnKind, str]] = [
    *(("question", text) for text in intents.QUESTIONS + intents.HELD_OUT_QUESTIONS),
    *(("edit", text) for text in intents.EDITS + intents.HELD_OUT_EDITS),
]


class Scorer:
    """Gives prepared scores and keeps what it was asked."""

    def __init__(self, *scores: float) -> None:
        self.scores = list(scores)
        self.asked: list[list[str]] = []

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        self.asked.append([messages[-2]["content"], *candidates])
        return self.scores


@pytest.mark.parametrize(("kind", "text"), LABELLED)
def test_words_are_never_wrong(kind: TurnKind, text: str) -> None:
    """Where the words decide, they decide as a person did."""
    assert intent_by_words(text) in (kind, None)


def test_words_decide_most() -> None:
    """The model is asked about few of them: it costs a turn."""
    undecided = [text for _, text in LABELLED if intent_by_words(text) is None]
    assert len(undecided) <= len(LABELLED) // 4, undecided


@pytest.mark.parametrize(("scores", "kind"), [((-1.0, -2.0), "question"), ((-2.0, -1.0), "edit")])
async def test_the_model_decides_the_rest(scores: tuple[float, float], kind: TurnKind) -> None:
    """Two continuations are scored, and the likelier one decides."""
    scorer = Scorer(*scores)
    assert await decide_intent(scorer, "shorter names") == IntentDecided(kind, "model")
    assert scorer.asked == [["shorter names", "question", "change"]]


async def test_the_model_is_not_asked_without_need() -> None:
    """Where the words decide, nothing is scored."""
    scorer = Scorer()
    assert await decide_intent(scorer, "What is this?") == IntentDecided("question", "words")
    assert not scorer.asked


@pytest.mark.parametrize("text", intents.SMALL_TALK)
async def test_small_talk_is_answered_whatever_the_model_thinks(text: str) -> None:
    """A greeting, thanks or a yes is a question by its words: a model that would edit is not asked."""
    would_edit = Scorer(-9.0, -1.0)
    assert await decide_intent(would_edit, text) == IntentDecided("question", "words")
    assert not would_edit.asked


@pytest.mark.parametrize("text", intents.NO_SMALL_TALK)
def test_an_edit_may_begin_like_small_talk(text: str) -> None:
    """What follows the thanks decides."""
    assert intent_by_words(text) == "edit"


@pytest.mark.parametrize("text", ["", " ", "?", "!", "@", "a" * 100_000, "add " * 20_000, "please " * 20_000])
def test_odd_messages_take_no_time(text: str) -> None:
    """Whatever is pasted is decided or left to the model, at once."""
    assert intent_by_words(text) in ("question", "edit", None)
