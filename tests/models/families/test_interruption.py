"""An answer that the user interrupted: the model is told so in front of what they said, in every family."""

import pytest
from hypothesis import given

from tests.models.families import conversation as talk
from tests.models.families.test_logs import CHATML, EVERY, HARMONY, LETTERS, WORDS
from tests.models.families.tokenizers import NamedTokenizer
from vivace.models.families.base import Entry, Family, Interruption, Message, OutputSpec
from vivace.models.families.interruption import QUOTED_CHARS, drops_task, tell_interruptions
from vivace.models.families.qwen25 import Qwen25

ASKED = Message("user", "Tell me of Rome.")
TOLD = '(I had asked: "Tell me of Rome." Answer that again, with this change:)\n\n'
NEW = "(A new request:)\n\n"


def said(
    tokenizer: NamedTokenizer, family: Family, text: str, before: list[Entry] | None = None
) -> list[int]:
    """A log that stops in an answer."""
    log = family.render([*(before or []), ASKED])
    log += family.answer(log, OutputSpec())
    if tokenizer is HARMONY:
        log += [tokenizer.control("<|channel|>"), *b"final", tokenizer.control("<|message|>")]
    return log + tokenizer.encode(text)


@EVERY
@given(text=LETTERS, steer=LETTERS)
def test_the_request_is_quoted_before_what_the_user_said(
    tokenizer: NamedTokenizer, family: Family, text: str, steer: str
) -> None:
    """The answer stays as it is; behind it comes the user's text, after the request that it interrupts."""
    log = said(tokenizer, family, text)
    shown = tokenizer.shown(family.render([Interruption(), Message("user", steer)], after=log))
    assert f"{TOLD}{steer}" in shown


@given(text=WORDS, steer=LETTERS, again=LETTERS)
def test_a_conversation_sent_again_has_the_tokens_of_its_log(text: str, steer: str, again: str) -> None:
    """The whole history with answers that were cut off is the log that goes on from them, token by token."""
    family = Qwen25(CHATML)
    log = said(CHATML, family, text)
    entries: list[Entry] = [ASKED, Message("assistant", text)]
    for words in (steer, again):
        news: list[Entry] = [Interruption(), Message("user", words)]
        log += family.render(news, after=log)
        assert family.render([*entries, *news]) == log
        log += family.answer(log, OutputSpec()) + CHATML.encode(text)
        entries += [*news, Message("assistant", text)]


@EVERY
def test_a_second_interruption_quotes_the_first_request(tokenizer: NamedTokenizer, family: Family) -> None:
    """What is interrupted twice is still the answer to what was asked in the beginning."""
    log = said(tokenizer, family, "Rome is")
    for steer in ("In German.", "No, in Spanish."):
        news = family.render([Interruption(), Message("user", steer)], after=log)
        assert f"{TOLD}{steer}" in tokenizer.shown(news)
        log += news + family.answer(log + news, OutputSpec())
        if tokenizer is HARMONY:
            log += [tokenizer.control("<|channel|>"), *b"final", tokenizer.control("<|message|>")]
        log += tokenizer.encode("Rom")


@EVERY
@pytest.mark.parametrize(
    "steer", ["Stop. Name three colours.", "Never mind. Count to 5.", "What is 9 times 9?"]
)
def test_a_message_that_drops_the_task_is_a_new_request(
    tokenizer: NamedTokenizer, family: Family, steer: str
) -> None:
    """What wants something else is told without the old request, and is what the next change is about."""
    log = said(tokenizer, family, "Rome is")
    news = family.render([Interruption(), Message("user", steer)], after=log)
    assert f"{NEW}{steer}" in tokenizer.shown(news)
    assert "Tell me of Rome" not in tokenizer.shown(news)
    log += news + family.answer(log + news, OutputSpec())
    if tokenizer is HARMONY:
        log += [tokenizer.control("<|channel|>"), *b"final", tokenizer.control("<|message|>")]
    log += tokenizer.encode("Red")
    news = family.render([Interruption(), Message("user", "In French.")], after=log)
    assert f'(I had asked: "{steer}" Answer that again' in tokenizer.shown(news)


@pytest.mark.parametrize(
    "steer",
    [
        "In French, please.",
        "Use a loop instead.",
        "Add a dragon called Bruno.",
        "Shorter.",
        "Not so stopgap.",
    ],
)
def test_a_change_keeps_the_request(steer: str) -> None:
    """What only changes the task does not drop it."""
    assert not drops_task(steer)


@EVERY
def test_what_tools_answered_is_no_request(tokenizer: NamedTokenizer, family: Family) -> None:
    """An answer after tool calls is the answer to what the user asked before them."""
    log = family.render([*talk.BEGIN, *talk.CALLING, *talk.OUTPUTS], tools=talk.TOOLS)
    log += family.answer(log, OutputSpec())
    if tokenizer is HARMONY:
        log += [tokenizer.control("<|channel|>"), *b"final", tokenizer.control("<|message|>")]
    log += tokenizer.encode("22")
    news = tokenizer.shown(family.render([Interruption(), Message("user", "In French.")], after=log))
    assert f'(I had asked: "{" ".join(talk.QUESTION.split())}" Answer that again' in news


@EVERY
@pytest.mark.parametrize("has_answer", [False, True])
def test_nothing_is_told_where_nothing_was_interrupted(
    tokenizer: NamedTokenizer, family: Family, has_answer: bool
) -> None:
    """Behind a whole answer nothing is told, and an interruption of nothing changes nothing."""
    news = Message("user", "Go on.")
    if has_answer:
        shown = tokenizer.shown(family.render([ASKED, Message("assistant", "Yes."), news]))
        assert "I had asked" not in shown
    else:
        assert family.render([Interruption(), news]) == family.render([news])


def test_only_the_next_message_is_an_interruption() -> None:
    """What is said later in the conversation is told as it is."""
    family = Qwen25(CHATML)
    log = said(CHATML, family, "One, two")
    log += family.render(
        [Interruption(), Message("user", "Shorter."), Message("assistant", "OK.")], after=log
    )
    later = CHATML.shown(family.render([Message("user", "Thanks.")], after=log))
    assert later == "\n<|im_start|>user\nThanks.<|im_end|>"


def test_new_instructions_stand_before_the_interruption() -> None:
    """Instructions that change with the message do not hide that it interrupts."""
    family = Qwen25(CHATML)
    log = said(CHATML, family, "One, two")
    entries = [Message("system", "Be brief."), Interruption(), Message("user", "Shorter.")]
    assert f"{TOLD}Shorter." in CHATML.shown(family.render(entries, after=log))  # type: ignore[arg-type]


def test_a_long_request_is_shortened() -> None:
    """A request of many lines is quoted on one, and only its beginning."""
    entries = [
        Message("user", "word \n" * 200),
        Message("assistant", "x"),
        Interruption(),
        Message("user", "No."),
    ]
    told = tell_interruptions(entries)[-1]  # type: ignore[arg-type]
    assert isinstance(told, Message)
    quote, _, text = told.text.partition("\n\n")
    assert text == "No."
    assert len(quote) < QUOTED_CHARS + 70
    assert quote.startswith('(I had asked: "word word word')
    assert quote.endswith('…" Answer that again, with this change:)')
