"""The backend by itself: token logs, sessions and what the engine is sent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.serving import script
from vivace.config import Settings
from vivace.protocol.shapes.outcomes import Ended, TextDelta
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native import loaded_model
from vivace.server.backends.native.backend import NativeBackend
from vivace.server.caller import Caller
from vivace.server.conversation.library import Library
from vivace.server.conversation.token_log import LogContents, Session, StoredResponse
from vivace.server.store.sqlite import SqliteStore

REPLY = "Fine, thanks."


class Talk:
    """A backend, asked from Python."""

    def __init__(self, backend: NativeBackend, library: Library) -> None:
        self.backend = backend
        self.library = library
        self._count = 0

    async def ask(self, text: str, previous: str | None = None, **fields: object) -> tuple[str, str, Ended]:
        """Response id, text and end of one turn."""
        self._count += 1
        request = ResponseCreate(input=text, previous_response_id=previous, **fields)  # type: ignore[arg-type]
        turn = self.backend.begin(request, f"resp_{self._count}", Caller())
        outcomes = [outcome async for outcome in turn.outcomes()]
        assert isinstance(outcomes[-1], Ended), outcomes[-1]
        said = "".join(outcome.delta for outcome in outcomes if isinstance(outcome, TextDelta))
        return turn.id, said, outcomes[-1]

    def tokens(self, response_id: str) -> list[int]:
        return self._known(response_id).tokens()

    def session(self, response_id: str) -> Session:
        session = self._known(response_id).session
        assert session is not None
        return session

    def _known(self, response_id: str) -> StoredResponse:
        known = self.library.peek(response_id, Caller())
        assert known is not None
        return known


@pytest.fixture
async def talk(settings: Settings, tmp_path: Path) -> AsyncIterator[Talk]:
    async with SqliteStore(settings.database) as store:
        library = Library(store)
        model = script(tmp_path, replies={"": REPLY}, step_ms=0.5)
        backend = NativeBackend(settings.having(model=model), library)
        backend.start()
        yield Talk(backend, library)
        await backend.close()


async def test_the_log_only_grows(talk: Talk) -> None:
    """Law 1: the log of turn n+1 begins with exactly the tokens of turn n, and nothing is rendered again."""
    previous, seen = None, []
    for number in range(5):
        previous, said, end = await talk.ask(f"question {number}", previous)
        assert said == REPLY
        tokens = talk.tokens(previous)
        assert tokens[: len(seen)] == seen
        assert end.usage.total_tokens == len(tokens)
        assert len(seen) - 1 <= end.usage.input_tokens_details.cached_tokens <= len(seen)
        seen = tokens


async def test_the_latest_response_is_continued_and_an_older_one_forked(talk: Talk) -> None:
    """From its end a session goes on; from the middle a new one begins, with what was before shared."""
    first, _, _ = await talk.ask("one")
    second, _, _ = await talk.ask("two", first)
    assert talk.session(second) is talk.session(first)
    before = talk.tokens(second)
    fork, _, end = await talk.ask("three", first)
    assert talk.session(fork) is not talk.session(first)
    assert talk.tokens(fork)[: len(talk.tokens(first))] == talk.tokens(first)
    assert end.usage.input_tokens_details.cached_tokens >= len(talk.tokens(first)) - 1
    assert talk.tokens(second) == before


async def test_two_continuations_at_once_do_not_mix(talk: Talk) -> None:
    """While the session's latest turn runs, a second continuation of the same response forks."""
    first, _, _ = await talk.ask("one")
    (a, said_a, _), (b, said_b, _) = await asyncio.gather(talk.ask("two", first), talk.ask("three", first))
    assert said_a == said_b == REPLY
    assert talk.session(a) is not talk.session(b)
    shared = talk.tokens(first)
    assert talk.tokens(a)[: len(shared)] == talk.tokens(b)[: len(shared)] == shared
    assert b"two" in bytes(t for t in talk.tokens(a) if t < 256)
    assert b"three" in bytes(t for t in talk.tokens(b) if t < 256)


async def test_an_interrupted_turn_keeps_its_partial(talk: Talk) -> None:
    """What was said stays in the log, and the next turn goes on after it without prefilling it again."""
    request = ResponseCreate(input="one")
    turn = talk.backend.begin(request, "resp_cut", Caller())
    async for outcome in turn.outcomes():
        if isinstance(outcome, TextDelta):
            turn.interrupt()
    assert isinstance(outcome, Ended)
    assert outcome.reason == "interrupted"
    partial = talk.tokens("resp_cut")
    then, said, end = await talk.ask("two", "resp_cut")
    assert said == REPLY
    assert talk.tokens(then)[: len(partial)] == partial
    assert end.usage.input_tokens_details.cached_tokens >= len(partial) - 1


async def test_a_turn_interrupted_at_once_ends_once(talk: Talk) -> None:
    """Before it has begun to run, interrupts give one `Ended` and nothing else."""
    for _ in range(3):
        turn = talk.backend.begin(ResponseCreate(input="one"), "resp_x", Caller())
        turn.interrupt()
        turn.interrupt()
        outcomes = [outcome async for outcome in turn.outcomes()]
        assert [type(outcome) for outcome in outcomes] == [Ended]
    assert (await talk.ask("two"))[1] == REPLY


async def test_interrupts_at_any_moment_end_every_turn_once(talk: Talk) -> None:
    """Interrupts race with starts, steps and ends: each turn ends exactly once, and all is free again."""

    async def race(number: int) -> None:
        turn = talk.backend.begin(ResponseCreate(input="one"), f"resp_race_{number}", Caller())
        asyncio.get_running_loop().call_later(number * 0.0007, turn.interrupt)
        ends = [outcome async for outcome in turn.outcomes() if isinstance(outcome, Ended)]
        assert len(ends) == 1

    await talk.ask("warm")
    for number in range(40):
        await race(number)
    await asyncio.gather(*(race(number) for number in range(40)))
    assert (await talk.backend.status()).turns == 0


async def test_sessions_beyond_the_limit_are_closed_and_come_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine holds the latest sessions only; an older one is opened again from its log."""
    monkeypatch.setattr(loaded_model, "MAX_OPEN_SESSIONS", 2)
    first, _, _ = await talk.ask("one")
    for number in range(4):
        await talk.ask(f"other {number}")
    assert (await talk.backend.status()).sessions == 2
    second, said, end = await talk.ask("two", first)
    assert said == REPLY
    assert talk.session(second) is talk.session(first)
    assert end.usage.input_tokens == len(talk.tokens(second)) - end.usage.output_tokens


async def test_memory_forgets_what_was_longest_unused(settings: Settings) -> None:
    """It holds so many responses and no more; using one keeps it."""

    def known(name: str) -> StoredResponse:
        return StoredResponse(
            name,
            tenant="",
            connection="",
            is_stored=True,
            model="m",
            log_contents=LogContents(),
            session=Session(),
            length=0,
        )

    async with SqliteStore(settings.database) as store:
        library = Library(store, capacity=2)
        for name in "ab":
            library.keep(known(name))
        library.peek("a", Caller())
        library.keep(known("c"))
        assert [bool(library.peek(name, Caller())) for name in "abc"] == [True, False, True]
