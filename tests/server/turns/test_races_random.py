"""Races at random: creates, cancels, steers, interrupts and disconnects in any order and at any moment.

Against a simple reference: in each lane every request is answered once, in the order in which they came; each
response has one end; what it says is what the model would say, whole or cut off; and nothing is left.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from websockets.exceptions import ConnectionClosed

from tests.server.inside import Inside, served_here
from tests.server.serving import script
from tests.server.talking import ENDS, Event, Talker, check_numbers, talking
from tests.thorough import examples
from vivace.config import Settings

TEXT = "".join(f"{number:03} " for number in range(50))
CALL = 'Look. <tool_call>{"name": "look", "arguments": {"at": "the end of the road"}}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
LANES = (None, "a", "b")
STEERS = ("response.steer.failed", "response.steer.pending")
SOCKETS = 2
Step = tuple[int, str, Any]  # which client, what, how


class Stage:
    """A server in this process, on a loop that runs whenever a test asks it to."""

    def __init__(self, runner: asyncio.Runner, inside: Inside) -> None:
        self.run = runner.run
        self.inside = inside


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two turns at once and few in line, so that there is a crowd."""
    folder = tmp_path_factory.mktemp("random")
    model = script(folder, replies={"call": CALL, "": TEXT}, step_ms=1, prefill_token_ms=0.02)
    values = {"cache_dir": folder / "cache", "state_dir": folder, "port": 0, "threads": 1, "model": model}
    server = served_here(Settings(**values, allow_scripted=True, max_running=2, max_waiting=3))  # type: ignore[arg-type]
    with asyncio.Runner() as runner:
        yield Stage(runner, runner.run(server.__aenter__()))
        runner.run(server.__aexit__(None, None, None))


# ---- what clients do ----------------------------------------------------------------------------------

creates = some.fixed_dictionaries(
    {
        "lane": some.sampled_from(LANES),
        "input": some.sampled_from(["go", "call"]),
        "follows": some.booleans(),  # the lane's latest response
        "is_stored": some.booleans(),
        "tier": some.sampled_from(["auto", "flex"]),
        "max_output_tokens": some.sampled_from([None, None, None, 3]),
        "is_generating": some.sampled_from([True, True, True, False]),
    }
)
aborts = some.tuples(
    some.integers(0, 8),  # events that are heard first
    some.integers(0, 2),  # which of the latest responses
    some.booleans(),  # whether what is not whole is discarded
)
kinds = some.sampled_from([*["create"] * 6, *["cancel"] * 3, *["interrupt"] * 3, *["steer"] * 4, "leave"])
step = kinds.flatmap(
    lambda kind: some.tuples(
        some.integers(0, SOCKETS - 1), some.just(kind), creates if kind == "create" else aborts
    )
)


class Client:
    """One socket, what was asked on it, and what it heard."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self.asked: dict[str | None, list[str]] = {lane: [] for lane in LANES}
        self.created: list[str] = []
        self.latest: dict[str | None, str] = {}
        self.is_gone = False
        self._news = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                event = json.loads(await self.talker.connection.recv())
                self.talker.heard.append(event)
                if event["type"] == "response.created":
                    self.created.append(event["response"]["id"])
                if event["type"] in ENDS and event["response"]["status"] != "failed":
                    self.latest[event.get("stream_id")] = event["response"]["id"]
                async with self._news:
                    self._news.notify_all()

    async def do(self, kind: str, given: Any) -> None:
        if kind == "create":
            await self._create(**given)
        else:
            await self._abort(kind, *given)

    async def _abort(self, kind: str, count: int, recent: int, is_discarding: bool) -> None:
        if count:
            await self.hear(count)
        if kind == "leave":
            self.is_gone = True
            self.talker.connection.transport.abort()
        elif self.created:
            target = self.created[-1 - recent % len(self.created)]
            if kind == "steer":
                await self.talker.say("response.steer", previous_response_id=target, input="more")
            else:
                fields = {"mode": "discard_partial_items"} if is_discarding else {}
                await self.talker.say(f"response.{kind}", response_id=target, **fields)

    async def _create(self, lane: str | None, follows: bool, is_stored: bool, **given: Any) -> None:
        """Marked, so that its answer is known again."""
        mark = f"{lane}/{len(self.asked[lane])}"
        self.asked[lane].append(mark)
        fields: dict[str, Any] = {"metadata": {"mark": mark}, "store": is_stored, "input": given["input"]}
        fields |= {"stream_id": lane} if lane else {}
        fields |= {"previous_response_id": self.latest[lane]} if follows and lane in self.latest else {}
        fields |= {"tools": [LOOK], "service_tier": given["tier"]}
        fields |= {"max_output_tokens": given["max_output_tokens"]} if given["max_output_tokens"] else {}
        fields |= {} if given["is_generating"] else {"generate": False}
        await self.talker.create(**fields)

    async def hear(self, count: int) -> None:
        """So many more events, or all that there will be."""
        goal = len(self.talker.heard) + count
        async with asyncio.timeout(90), self._news:
            await self._news.wait_for(lambda: len(self.talker.heard) >= goal or self.is_settled())

    async def settle(self) -> None:
        if not self.is_gone:
            async with asyncio.timeout(90), self._news:
                await self._news.wait_for(self.is_settled)

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])

    def is_settled(self) -> bool:
        """Every request has its answer, what was begun has its end, and each steer its fate."""
        heard = self.talker.heard
        begun, ended = ([e for e in heard if e["type"] in kinds] for kinds in (("response.created",), ENDS))
        answers = [mark for lane in LANES for mark in answered(heard, lane)]
        is_answered = len(answers) >= sum(map(len, self.asked.values()))
        return is_answered and len(begun) == len(ended) and all(map(self._is_decided, heard))

    def _is_decided(self, event: Event) -> bool:
        """A steer that was accepted is carried on, given back, or waits for the client's answer to a call."""
        if event["type"] != "response.steer.accepted":
            return True
        steer = event["steer"]
        return any(
            (other["type"] in STEERS and other["steer"].get("id") == steer["id"])
            or (
                other["type"] == "response.created"
                and other["response"]["previous_response_id"] == steer["previous_response_id"]
            )
            for other in self.talker.heard
        )


def is_successor(created: Event, heard: list[Event]) -> bool:
    """Whether nobody asked for it but by a steer: its mark was there before."""
    mark = created["response"]["metadata"]["mark"]
    first = next(
        e for e in heard if e["type"] == "response.created" and e["response"]["metadata"]["mark"] == mark
    )
    return first is not created


def answered(heard: list[Event], lane: str | None) -> list[str]:
    """Marks of the lane's requests, in the order of their answers; "" for an error."""
    marks = []
    for event in heard:
        if event.get("stream_id") != lane:
            continue
        if event["type"] == "error":
            marks.append("")
        elif event["type"] == "response.created" and not is_successor(event, heard):
            marks.append(event["response"]["metadata"]["mark"])
    return marks


# ---- what must hold -----------------------------------------------------------------------------------


def check_lanes(client: Client) -> None:
    for lane, asked in client.asked.items():
        answers = answered(client.talker.heard, lane)
        assert len(answers) == len(asked), (lane, asked, answers)
        assert [mark for mark in answers if mark] == [mark for mark in asked if mark in answers], "in order"
        assert all(mine in ("", mark) for mine, mark in zip(answers, asked, strict=True)), "in its place"
        running = 0
        for event in client.talker.heard:
            if event.get("stream_id") == lane:
                running += (event["type"] == "response.created") - (event["type"] in ENDS)
                assert 0 <= running <= 1, "one at a time"


def check_texts(heard: list[Event]) -> None:
    for event in heard:
        if event["type"] not in ENDS:
            continue
        response = event["response"]
        assert response["status"] in ("completed", "incomplete"), response["error"]
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        texts = [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]
        said = "".join("".join(texts).split())  # a call that was cut off is text, too
        assert "".join(TEXT.split()).startswith(said) or "".join(CALL.split()).startswith(said), texts
        for call in calls:
            assert json.loads(call["arguments"]) == {"at": "the end of the road"}
        if response["status"] == "completed" and response["usage"]["output_tokens"]:
            assert calls or texts == [TEXT]


@given(steps=some.lists(step, min_size=4, max_size=24))
@settings(max_examples=examples(30, times=20), suppress_health_check=list(HealthCheck), print_blob=True)
def test_any_order_of_requests_and_aborts(stage: Stage, steps: list[Step]) -> None:
    """Whatever two clients do to their lanes, and whenever they go: each request has its one answer."""
    stage.run(play(stage.inside, steps))


async def play(inside: Inside, steps: list[Step]) -> None:
    tasks = len(asyncio.all_tasks())
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(SOCKETS):
            talker = await stack.enter_async_context(talking(inside.address))
            clients.append(Client(talker))
        for number, kind, how in steps:
            if not clients[number].is_gone:
                await clients[number].do(kind, how)
        for client in clients:
            await client.settle()
        for client in clients:
            await client.close()
            if not client.is_gone:
                check_numbers(client.talker.heard)
                check_lanes(client)
                check_texts(client.talker.heard)
    await inside.calm()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) <= tasks + 1, "no task is left"
    for gauge in ("num_requests_running", "num_requests_waiting"):
        page = inside.metrics.render().decode()
        values = [
            float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"vivace:{gauge}")
        ]
        assert not any(values), gauge
