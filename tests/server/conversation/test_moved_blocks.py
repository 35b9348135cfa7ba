"""A block that a client moves with each turn is found in the log, where it stays; nothing is left out."""

from tests.models.families import tokenizers
from vivace.models.families.base import Entry, Message
from vivace.models.families.qwen25 import Qwen25
from vivace.server.conversation.known_tokens import in_known_tokens
from vivace.server.conversation.token_log import TokenLog

RULES = "Answer with whole files, each in a fence with its name above it, and nothing else behind it."
ROOM = 10_000
TOKENIZER = tokenizers.chatml()
FAMILY = Qwen25(TOKENIZER)


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str) -> Message:
    return Message("assistant", text)


def rules() -> Message:
    return Message("system", RULES)


def written(*entries: Entry) -> list[int]:
    return FAMILY.render(list(entries))


def known(prompt: list[int], log: list[int], most_tokens: int = ROOM) -> str:
    return TOKENIZER.shown(in_known_tokens(prompt, [TokenLog(log)], TOKENIZER.token_bytes, most_tokens))


def test_rules_at_the_end_of_a_question_stay_where_they_were() -> None:
    """As aider moves them: the answer behind them is not read again, in a third turn neither."""
    log = written(user(f"One?\n\n{RULES}"), said("1."))
    prompt = written(user("One?"), said("1."), user(f"Two?\n\n{RULES}"))
    expected = TOKENIZER.shown(log) + "\n<|im_start|>user\nTwo?\n\n" + RULES + "<|im_end|>"
    assert known(prompt, log) == expected
    log = written(user(f"One?\n\n{RULES}"), said("1."), user(f"Two?\n\n{RULES}"), said("2."))
    prompt = written(user("One?"), said("1."), user("Two?"), said("2."), user(f"Three?\n\n{RULES}"))
    assert known(prompt, log).startswith(TOKENIZER.shown(log))


def test_rules_in_a_message_of_their_own_stay_where_they_were() -> None:
    """As aider sends them to some models."""
    log = written(user("One?"), rules(), said("1."))
    prompt = written(user("One?"), said("1."), user("Two?"), rules())
    whole = written(user("One?"), rules(), said("1."), user("Two?"), rules())
    assert known(prompt, log) == TOKENIZER.shown(whole)


def test_what_is_left_out_stays_left_out() -> None:
    """A block that the newest message does not end with was not moved; one in its middle neither."""
    log = written(user(f"One?\n\n{RULES}"), said("1."))
    for last in ("Two?", f"{RULES}\n\nTwo?", f"Two?\n\n{RULES} And more."):
        prompt = written(user("One?"), said("1."), user(last))
        assert known(prompt, log) == TOKENIZER.shown(prompt)
    log = written(user("One?"), rules(), said("1."))
    prompt = written(user("One?"), said("1."), user("Two?"))
    assert known(prompt, log) == TOKENIZER.shown(prompt)


def test_short_blocks_and_changed_questions_are_none() -> None:
    """A few words may be there by chance."""
    log = written(user("One? Please."), said("1."))
    prompt = written(user("One?"), said("1."), user("Two? Please."))
    assert known(prompt, log) == TOKENIZER.shown(prompt)
    log = written(user(f"One?\n\n{RULES}"), said("1."))
    prompt = written(user("Other?"), said("1."), user(f"Two?\n\n{RULES}"))
    assert known(prompt, log) == TOKENIZER.shown(prompt)


def test_a_prompt_becomes_no_longer_than_there_is_room() -> None:
    """And is as the client sent it where that is the setting."""
    log = written(user(f"One?\n\n{RULES}"), said("1."))
    prompt = written(user("One?"), said("1."), user(f"Two?\n\n{RULES}"))
    assert known(prompt, log, len(prompt) + len(RULES)) == TOKENIZER.shown(prompt)
    assert known(prompt, log, 0) == TOKENIZER.shown(prompt)
