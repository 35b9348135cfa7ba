"""What changes in a client's system text is read behind its tools, where the chat format has room."""

import pytest

from tests.models.families import tokenizers
from vivace.models.families.base import Entry, Family, Message, Tool
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen25 import Qwen25
from vivace.server.conversation.stable_prompt import divided, tells_tools_between, with_changing_last

TOOL = Tool("look", description="Looks at a file. " * 100, parameters={"type": "object", "properties": {}})
RULES = "You help with code.\n\nBe brief."


@pytest.mark.parametrize(
    "changing",
    [
        "# Memory\n\nYou have notes at `/home/ann/.notes/shop/`.\n\nMore.",
        "Here is where you are:\n<env>\nFolder: x\n</env>",
        "The date is 2026-11-19.",
        "gitStatus: clean",
        "You are in C:\\work\\shop.",
        "Today's date: Thu Nov 19",
    ],
)
def test_a_text_is_divided_before_the_first_thing_that_changes(changing: str) -> None:
    """Between two paragraphs, with the heading that belongs to it."""
    assert divided(f"{RULES}\n\n{changing}") == (RULES, changing)


@pytest.mark.parametrize("text", [RULES, "", "In /home/ann/shop.", "See /path/to/file, src/a/b.py, 1/2/3."])
def test_a_text_without_such_a_place_stays_whole(text: str) -> None:
    """Examples are no folders, and something must be left in front of the tools."""
    assert divided(text) == (text, "")


def test_lines_are_divided_where_there_are_no_paragraphs() -> None:
    """As the shortest prompt of Claude Code has it."""
    assert divided("You are an agent.\nBe brief.\nDate: 2026-11-19") == (
        "You are an agent.\nBe brief.",
        "Date: 2026-11-19",
    )
    assert divided("You are an agent.\nCWD: /home/ann/shop") == ("You are an agent.", "CWD: /home/ann/shop")


def test_only_long_tools_are_worth_it() -> None:
    """And only a first message of the system's is divided."""
    system, asked = Message("system", f"{RULES}\n\nIn /home/ann/shop."), Message("user", "Hi.")
    entries: list[Entry] = [system, asked]
    parted = [Message("system", RULES), Message("system", "In /home/ann/shop."), asked]
    assert with_changing_last(entries, [TOOL]) == parted
    assert with_changing_last(entries, [Tool("look")]) == entries
    assert with_changing_last([asked, system], [TOOL]) == [asked, system]
    assert with_changing_last([], [TOOL]) == []


def test_two_folders_share_all_but_what_differs() -> None:
    """Rules and tools are the same tokens, and the rest is there, as a message of the system's."""
    tokenizer = tokenizers.chatml()
    family = Qwen25(tokenizer)

    def written(folder: str) -> str:
        system = Message("system", f"{RULES}\n\nIn {folder}.")
        entries = with_changing_last([system, Message("user", "Hi.")], [TOOL])
        return tokenizer.shown(family.render(entries, tools=[TOOL]))

    one, two = written("/home/ann/shop"), written("/home/bob/site")
    shared = next(place for place, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
    assert TOOL.description in one[:shared]
    assert one[shared - len("In /home/") :].startswith("In /home/ann/shop.<|im_end|>")
    assert one.count("<|im_start|>system\n") == 2


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (Qwen25(tokenizers.chatml()), True),
        (Qwen3(tokenizers.chatml()), True),
        (Llama3(tokenizers.NamedTokenizer(tokenizers.LLAMA, ends=["<|eot_id|>"])), False),
    ],
    ids=["qwen2.5", "qwen3", "llama3"],
)
def test_where_tools_come_first_nothing_is_moved(family: Family, expected: bool) -> None:
    """Llama 3 has them in front of the system text."""
    tokenizer = family.tokenizer  # type: ignore[attr-defined]
    assert tells_tools_between(family, tokenizer) is expected
