"""64 sockets on one GPU, and everybody does as they like: test_crowd_random.py with a real model.

    python benchmarks/gpu_crowd.py FOLDER [--seed N] [--acts N]

FOLDER holds the weights. First everyone asks alone, once and once more behind that. Then all ask at once, go
on, stop, steer, draft from a prediction, have tokens sampled on the host, hang up in the middle, and the
engine is killed. Every text must be the one of the user alone, whole or cut off. Not compared: what follows a
steer, which depends on when it came, and what follows the engine's death: a turn that goes on there reads its
own words as a prompt, whose keys and values are rounded in another way. It passes, or says what was wrong.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.server.inside import Inside, served_here, until
from tests.server.talking import ENDS, Event, Talker, check_numbers, talking
from vivace.config import load_settings

SOCKETS = 64
TOKENS = 96  # of an answer
LANGUAGES = ("Python", "Rust", "Go", "C", "Java", "Haskell", "JavaScript", "Ruby")
TASKS = (
    *("sorts a list", "parses a date", "reverses a string", "counts words"),
    *("finds primes", "merges two lists", "reads a CSV file", "walks a tree"),
)
GO_ON = "Now add a test for it."


def question(number: int) -> str:
    language, task = LANGUAGES[number % len(LANGUAGES)], TASKS[number // len(LANGUAGES) % len(TASKS)]
    return f"Write a function in {language} that {task}. Then explain it."


def text_of(response: Event) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


class User:
    """One of them: a socket at a time, and what must hold for each answer."""

    def __init__(self, inside: Inside, number: int, chance: random.Random) -> None:
        self._inside, self._number, self._chance = inside, number, chance
        self._alone: list[str] = []  # the first answer, and the one behind it
        self._last = ""  # the response to go on from: one that was whole
        self.whole = self.cut = self.steered = self.left = self.deaths = 0

    async def ask_alone(self) -> None:
        async with talking(self._inside.address) as talker:
            first = await talker.complete(**self._prompt())
            self._last = first["id"]
            second = await talker.complete(**self._prompt())
        self._alone = [text_of(first), text_of(second)]

    def _prompt(self) -> dict[str, Any]:
        how = {"temperature": 0, "max_output_tokens": TOKENS}
        if self._last:
            return {"input": GO_ON, "previous_response_id": self._last} | how
        return {"input": question(self._number)} | how

    async def live(self, acts: int) -> None:
        """Come and go until everything was done."""
        while acts > 0:
            self._last = ""
            async with talking(self._inside.address, close_timeout=1, open_timeout=60) as talker:
                while acts > 0:
                    acts -= 1
                    if await self._act(talker):
                        break

    async def _act(self, talker: Talker) -> bool:
        """Ask, and stay with it or not. Return whether the socket is gone."""
        if self._last and self._chance.random() < 0.5:
            self._last = ""
        wanted, prompt = self._alone[bool(self._last)], self._prompt()
        lane = {"stream_id": self._chance.choice("ab")} if self._chance.random() < 0.5 else {}
        if self._chance.random() < 0.3:
            prompt["prediction"] = {"type": "content", "content": wanted}
        if self._chance.random() < 0.2:  # the host samples
            prompt |= {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}
        was_second, self._last = bool(self._last), ""
        await talker.create(**prompt, **lane)
        act = self._chance.choice([self._stay, self._stay, self._stop, self._steer, self._leave])
        end = await act(talker, lane, wanted)
        if end and not was_second and end["type"] != "response.failed":
            self._last = end["response"]["id"]
        if end:
            check_numbers(talker.heard)
        return end is None and act == self._leave

    def _check(self, end: Event, wanted: str, *, is_whole: bool) -> bool:
        """Compare what was said. Return whether the engine lived."""
        response = end["response"]
        said, deaths = text_of(response), response["vivace"]["waterfall"]["restarts"]
        assert end["type"] != "response.failed", response["error"]
        self.deaths += deaths
        is_same = said == wanted if is_whole else wanted.startswith(said)
        assert is_same or deaths, f"user {self._number}: {said!r} is not of {wanted!r}"
        return not deaths

    async def _stay(self, talker: Talker, lane: dict[str, str], wanted: str) -> Event | None:
        del lane
        end = await talker.ended()
        lived = self._check(end, wanted, is_whole=True)
        self.whole += 1
        return end if lived else None

    async def _stop(self, talker: Talker, lane: dict[str, str], wanted: str) -> None:
        del lane
        response_id = await talker.said(self._chance.randrange(1, len(wanted) // 2))
        await talker.say(f"response.{self._chance.choice(['cancel', 'interrupt'])}", response_id=response_id)
        self._check(await talker.ended(), wanted, is_whole=False)
        self.cut += 1

    async def _steer(self, talker: Talker, lane: dict[str, str], wanted: str) -> None:
        """Turn it around. What comes too late changes nothing."""
        response_id = await talker.said(self._chance.randrange(1, len(wanted) // 2))
        await talker.say(
            "response.steer", previous_response_id=response_id, input="Name three colours instead.", **lane
        )
        answered = (*ENDS, "response.steer.accepted", "response.steer.failed")
        both = [await talker.until_type(*answered) for _ in range(2)]
        is_turned = "response.steer.accepted" in (event["type"] for event in both)
        end = next(event for event in both if event["type"] in ENDS)
        self._check(end, wanted, is_whole=not is_turned)
        if is_turned:
            end = await talker.ended()
            assert end["type"] != "response.failed" and text_of(end["response"]), end  # noqa: PT018
            self.deaths += end["response"]["vivace"]["waterfall"]["restarts"]
        self.steered += is_turned

    async def _leave(self, talker: Talker, lane: dict[str, str], wanted: str) -> None:
        del lane, wanted
        for _ in range(self._chance.choice([0, 1, 5, 7])):
            await talker.hear()
        talker.connection.transport.abort()
        with contextlib.suppress(ConnectionClosed):
            await talker.connection.wait_closed()
        self.left += 1


async def kill_in_the_middle(inside: Inside, users: list[User]) -> None:
    """Kill the engine when many answers are there and many turns are running."""
    await until(lambda: sum(user.whole for user in users) > SOCKETS)
    await until(lambda: sum(turn.output_tokens > 0 for turn in inside.native._turns) > SOCKETS // 8)
    (engine,) = (await inside.native.status()).engines
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)


async def run(folder: Path, seed: int, acts: int) -> None:
    with tempfile.TemporaryDirectory() as kept:
        settings = load_settings().having(
            model=str(folder),
            cache_dir=Path(kept, "cache"),
            state_dir=Path(kept, "state"),
            max_running=SOCKETS,
            max_waiting=4 * SOCKETS,
        )
        async with served_here(settings) as inside:
            users = [User(inside, number, random.Random(f"{seed} {number}")) for number in range(SOCKETS)]
            begun = time.perf_counter()
            for user in users:
                await user.ask_alone()
            print(f"alone: {2 * SOCKETS} answers in {time.perf_counter() - begun:.1f} s", flush=True)
            begun = time.perf_counter()
            killing = asyncio.create_task(kill_in_the_middle(inside, users))
            await asyncio.gather(*(user.live(acts) for user in users), killing)
            await inside.calm()
            loaded = inside.native._pool.latest
            assert loaded is not None
            status = await inside.native.status()
            assert status.sessions == len(loaded._open), "the engine has what the server knows"
            assert not [session.name for session in loaded._open.values() if session.is_busy]
            spent_s = time.perf_counter() - begun
            print(f"together: {SOCKETS} sockets, {SOCKETS * acts} questions in {spent_s:.1f} s", flush=True)
    for name in ("whole", "cut", "steered", "left", "deaths"):
        print(f"  {name}: {sum(getattr(user, name) for user in users)}")
    assert sum(user.deaths for user in users) > 0, "turns went on behind the engine's death"
    print("Every text is the one of its user alone.")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--acts", type=int, default=6)
    given = parser.parse_args()
    asyncio.run(run(given.folder, given.seed, given.acts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
