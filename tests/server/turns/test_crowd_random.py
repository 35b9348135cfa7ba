"""64 sockets on an engine that batches as one on a GPU does, and everybody does as they like.

Each user joins, asks, goes on, steers, stops and leaves at random, and the engine is killed in the middle.
Everyone's text is the one that they would have had alone, whole or cut off, and nothing is left behind.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from tests.server.talking import ENDS, Event, Talker, check_numbers, talking
from tests.thorough import MARK
from vivace.config import Settings

SOCKETS, ACTS, WORDS = 64, 3, 16
THOROUGH = [pytest.param(seed, 8, marks=getattr(pytest.mark, MARK)) for seed in range(1, 6)]
FAULTS = ("A pass of", "could not do a turn", "hole in the KV", "Traceback")  # in the engine's words


def text_of(user: int, word: str = "word") -> str:
    return "".join(f"{word}{user}.{number} " for number in range(WORDS))


REPLIES = {f"<steer {user}>": text_of(user, "turned") for user in range(SOCKETS)} | {
    f"<user {user}>": text_of(user) for user in range(SOCKETS)
}


class User:
    """One of them: a socket at a time, and what must hold for each answer."""

    def __init__(self, inside: Inside, number: int, chance: random.Random) -> None:
        self._inside, self._number, self._chance = inside, number, chance
        self._steered = False  # the conversation so far
        self._last = ""  # the response to go on from
        self.whole = self.deaths = 0

    async def live(self, acts: int) -> None:
        """Come and go until everything was done."""
        while acts > 0:
            self._last, self._steered = "", False
            async with talking(self._inside.address, close_timeout=1, open_timeout=60) as talker:
                while acts > 0:
                    acts -= 1
                    if await self._act(talker):
                        break

    async def _act(self, talker: Talker) -> bool:
        """Ask, and stay with it or not. Return whether the socket is gone."""
        act = self._chance.choice([self._stay, self._stay, self._stop, self._steer, self._leave])
        lane = {"stream_id": self._chance.choice("ab")} if self._chance.random() < 0.5 else {}
        goes_on = {"previous_response_id": self._last} if self._last and self._chance.random() < 0.5 else {}
        self._steered = self._steered and bool(goes_on)
        prompt: dict[str, Any] = {"input": f"<user {self._number}> " + "please " * self._chance.randrange(30)}
        if self._chance.random() < 0.3:
            prompt["prediction"] = {"type": "content", "content": self._text()}
        if self._chance.random() < 0.2:
            prompt["top_logprobs"], prompt["include"] = (
                2,
                ["message.output_text.logprobs"],
            )  # the host samples
        await talker.create(**prompt, **goes_on, **lane)
        if await act(talker, lane):
            return True
        check_numbers(talker.heard)
        return False

    def _text(self) -> str:
        return text_of(self._number, "turned" if self._steered else "word")

    def _check(self, end: Event, *, is_whole: bool) -> None:
        response = end["response"]
        said = "".join(part["text"] for item in response["output"] for part in item["content"])
        assert said == self._text() if is_whole else self._text().startswith(said), (said, response["status"])
        self.deaths += response["vivace"]["waterfall"]["restarts"]
        self._last = response["id"]

    async def _stay(self, talker: Talker, lane: dict[str, str]) -> None:
        del lane
        end = await talker.ended()
        assert end["type"] == "response.completed", end
        self._check(end, is_whole=True)
        self.whole += 1

    async def _stop(self, talker: Talker, lane: dict[str, str]) -> None:
        del lane
        response_id = await talker.said(self._chance.randrange(1, len(self._text()) // 2))
        await talker.say(f"response.{self._chance.choice(['cancel', 'interrupt'])}", response_id=response_id)
        self._check(await talker.ended(), is_whole=False)

    async def _steer(self, talker: Talker, lane: dict[str, str]) -> None:
        """Turn it around. What comes too late changes nothing."""
        response_id = await talker.said(self._chance.randrange(1, len(self._text()) // 2))
        await talker.say(
            "response.steer", previous_response_id=response_id, input=f"<steer {self._number}>", **lane
        )
        answered = (*ENDS, "response.steer.accepted", "response.steer.failed")
        first = await talker.until_type(*answered)
        second = await talker.until_type(*answered)
        end = first if first["type"] in ENDS else second
        is_turned = "response.steer.accepted" in (first["type"], second["type"])
        self._check(end, is_whole=not is_turned)
        if is_turned:
            self._steered = True
            end = await talker.ended()
            assert end["type"] == "response.completed", end
            self._check(end, is_whole=True)
        self.whole += 1

    async def _leave(self, talker: Talker, lane: dict[str, str]) -> bool:
        del lane
        for _ in range(self._chance.choice([0, 1, 5, 7])):  # of eight at least
            await talker.hear()
        talker.connection.transport.abort()
        with contextlib.suppress(ConnectionClosed):
            await talker.connection.wait_closed()
        return True


async def kill_in_the_middle(inside: Inside, users: list[User]) -> None:
    """Kill the engine when a third of the answers are there and many turns are running."""
    await until(lambda: sum(user.whole for user in users) > SOCKETS // 2)
    await until(lambda: sum(turn.output_tokens > 0 for turn in inside.native._turns) > SOCKETS // 8)
    (engine,) = (await inside.native.status()).engines
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)


@pytest.mark.parametrize(("seed", "acts"), [(0, ACTS), *THOROUGH])
async def test_everyone_has_the_text_that_they_have_alone(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int, acts: int
) -> None:
    """Joins, leaves, cancels, steers, disconnects, drafts, and kill -9 of the engine."""
    print(f"seed {seed}")
    caplog.set_level(logging.INFO)
    model = script(
        tmp_path, replies=REPLIES, step_ms=2, prefill_token_ms=0.01, context_tokens=65_536, rows=64
    )
    crowded = settings.having(
        model=model, context_tokens=65_536, max_running=SOCKETS, max_waiting=4 * SOCKETS
    )
    async with served_here(crowded) as inside:
        users = [User(inside, number, random.Random(f"{seed} {number}")) for number in range(SOCKETS)]
        lives = [asyncio.create_task(user.live(acts)) for user in users]
        killing = asyncio.create_task(kill_in_the_middle(inside, users))
        await asyncio.gather(*lives, killing)
        await inside.calm()
        loaded = inside.native._pool.latest
        assert loaded is not None
        status = await inside.native.status()
        assert status.sessions == len(loaded._open), "the engine has what the server knows, and nothing else"
        assert not [session.name for session in loaded._open.values() if session.is_busy]
    assert sum(user.deaths for user in users) > 0, "turns went on behind the engine's death"
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if any(fault in line for fault in FAULTS)]
