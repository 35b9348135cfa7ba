"""Clients that send their whole history with every turn: next to nothing of it is read again.

Not in a second turn, not in another folder, and not on the next day.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.serving import script
from tests.server.transport.coding_clients import ANSWER, CLIENTS, CodingClient, Where
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings

AGAIN = 0.03  # of a prompt, the most that is read again
QUESTIONS = ("What is it?", "And why is that so?", "Make x 2.")
TOMORROW = Where(day="2026-11-20", commit="1234567 two")
ELSEWHERE = Where(folder="/home/ann/site", commit="7654321 other")
# What changes there with the folder and the day, in bytes, and glue. Tools of Continue name the folder, too.
CHANGING = {"claude-code": 5200, "opencode": 200, "qwen-code": 600, "continue": 300}

every = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
with_tools = pytest.mark.parametrize("name", CHANGING)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return script(tmp_path, replies={"": ANSWER}, context_tokens=120_000)


@every
def test_a_later_turn_reads_what_is_new(address: ServerAddress, model: str, client: CodingClient) -> None:
    """All that was read and written before is in the KV, but for rules that the client itself moves."""
    before = client.ask(address, model, Where(), QUESTIONS[:1])
    for count in (2, 3):
        read = client.ask(address, model, Where(), QUESTIONS[:count])
        again = before.prompt + before.output - read.cached
        assert again <= AGAIN * read.prompt
        new = len(QUESTIONS[count - 1]) + client.rules_bytes
        assert read.prompt - read.cached <= new + AGAIN * read.prompt
        before = read


@with_tools
@pytest.mark.parametrize("where", [ELSEWHERE, TOMORROW], ids=["folder", "day"])
def test_another_folder_or_day_reads_what_changed(
    address: ServerAddress, model: str, name: str, where: Where
) -> None:
    """Tools are not read again, nor what stands in front of the first change."""
    client = CLIENTS[name]
    client.ask(address, model, Where(), QUESTIONS[:1])
    read = client.ask(address, model, where, ("Another question?",))
    assert read.prompt - read.cached <= CHANGING[name]


@with_tools
def test_the_next_day_begins_with_what_is_on_the_disk(
    start: Callable[..., Settings], model: str, name: str
) -> None:
    """The server was stopped in between; the client's prompt was used once."""
    client = CLIENTS[name]
    settings = start(model=model)
    client.ask(warm.ensure_server(settings), model, Where(), QUESTIONS[:1])
    assert list(settings.kv_dir.rglob("*.prefix"))
    assert warm.stop_server(settings)
    for session in settings.kv_dir.rglob("*.session"):
        session.unlink()  # as if the server had been killed
    read = client.ask(warm.ensure_server(settings), model, TOMORROW, ("Another question?",))
    assert read.prompt - read.cached <= CHANGING[name]


def test_a_prompt_is_as_the_client_sends_it_where_that_is_the_setting(
    start: Callable[..., Settings], model: str
) -> None:
    """Then a new folder has the tools behind it read again, and moved rules the answers behind them."""
    address = warm.ensure_server(start(model=model, stable_prompts=False))
    claude, aider = CLIENTS["claude-code"], CLIENTS["aider"]
    claude.ask(address, model, Where(), QUESTIONS[:1])
    read = claude.ask(address, model, ELSEWHERE, QUESTIONS[:1])
    assert read.prompt - read.cached > 15_000
    aider.ask(address, model, Where(), QUESTIONS[:1])
    read = aider.ask(address, model, Where(), QUESTIONS[:2])
    rest = len(QUESTIONS[1]) + aider.rules_bytes + len(ANSWER)
    assert read.prompt - read.cached >= rest
