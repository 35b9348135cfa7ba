"""An answer that the user interrupted: the model is told so behind what it said, in every family."""

import pytest
from hypothesis import given, settings

from tests.models.families.test_logs import CHATML, EVERY, HARMONY, LETTERS, WORDS
from tests.models.families.tokenizers import NamedTokenizer
from vivace.models.families.base import Entry, Family, Interruption, Message, OutputSpec
from vivace.models.families.qwen25 import Qwen25

ASKED = Message("user", "hi")


def said(tokenizer: NamedTokenizer, family: Family, text: str) -> list[int]:
    """A log that stops in an answer."""
    log = family.render([ASKED])
    log += family.answer(log, OutputSpec())
    if tokenizer is HARMONY:
        log += [tokenizer.control("<|channel|>"), *b"final", tokenizer.control("<|message|>")]
    return log + tokenizer.encode(text)


@EVERY
@settings(deadline=None)
@given(text=LETTERS, steer=LETTERS)
def test_the_words_stand_around_what_the_user_said(
    tokenizer: NamedTokenizer, family: Family, text: str, steer: str
) -> None:
    """Behind the answer, which stays as it is, comes the user's text within the template's own words."""
    words = family.interruption  # type: ignore[attr-defined]
    log = said(tokenizer, family, text)
    shown = tokenizer.shown(family.render([Interruption(), Message("user", steer)], after=log))
    assert f"{words.before}{steer}{words.after}" in shown
    assert words.before or words.after or words.cut
    assert shown.startswith(words.cut)


@settings(deadline=None)
@given(text=WORDS, steer=LETTERS)
def test_a_conversation_sent_again_has_the_tokens_of_its_log(text: str, steer: str) -> None:
    """The whole history with the answer that was cut off is the log that goes on from it, token by token."""
    family = Qwen25(CHATML)
    news: list[Entry] = [Interruption(), Message("user", steer)]
    log = said(CHATML, family, text)
    whole = family.render([ASKED, Message("assistant", text), *news])
    assert whole == log + family.render(news, after=log)


@EVERY
@pytest.mark.parametrize("before", [[], [Message("assistant", "Yes.")]], ids=["nothing", "an answer"])
def test_nothing_is_told_where_nothing_was_interrupted(
    tokenizer: NamedTokenizer, family: Family, before: list[Entry]
) -> None:
    """Where no answer was cut off, an interruption changes nothing; and without one, nothing is told."""
    news = Message("user", "Go on.")
    if before:
        shown = tokenizer.shown(family.render([ASKED, *before, news]))
        words = family.interruption  # type: ignore[attr-defined]
        assert not any(part and part in shown for part in words)
    else:
        assert family.render([Interruption(), news]) == family.render([news])


def test_only_the_next_message_is_an_interruption() -> None:
    """What is said later in the conversation is told as it is."""
    family = Qwen25(CHATML)
    log = said(CHATML, family, "One, two")
    log += family.render([Interruption(), Message("user", "Stop."), Message("assistant", "OK.")], after=log)
    later = CHATML.shown(family.render([Message("user", "Thanks.")], after=log))
    assert later == "\n<|im_start|>user\nThanks.<|im_end|>"
