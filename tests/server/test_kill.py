"""kill -9 of the server: what was acknowledged is there, once, and the database is sound."""

import asyncio
import contextlib
import http.client
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests import REPOSITORY
from tests.server.serving import script, until
from tests.server.talking import Talker, ask, talking
from tests.thorough import examples
from vivace.client import warm
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings

ROUNDS = examples(5, times=16)
GONE = (ConnectionClosed, InvalidHandshake, OSError, http.client.HTTPException, EOFError)


@pytest.fixture
def kept(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Settings of servers that come after each other on the same database."""
    yield settings.having(model=script(tmp_path, replies={"": "Fine, thanks."}, step_ms=0.5))
    warm.stop_server(settings)


def kill(settings: Settings, address: ServerAddress) -> None:
    os.kill(address.pid, signal.SIGKILL)
    until(lambda: warm._is_lock_free(settings))


def check_database(settings: Settings) -> None:
    with contextlib.closing(sqlite3.connect(settings.database)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert not database.execute("PRAGMA foreign_key_check").fetchall()
        twice = "SELECT tenant, id FROM responses GROUP BY tenant, id HAVING COUNT(*) > 1"
        assert not database.execute(twice).fetchall()


# ---- at each point of a response's way ----------------------------------------------------------------


@contextlib.contextmanager
def dying(settings: Settings, point: str, count: int) -> Iterator[ServerAddress]:
    """A server that dies at this point of the response of this number."""
    command = [
        sys.executable,
        *("-m", "tests.server.kill_child"),
        settings.for_child().decode(),
        point,
        str(count),
    ]
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    with (
        (settings.run_dir / "dying.log").open("ab") as log,
        subprocess.Popen(command, stderr=log, cwd=REPOSITORY) as child,
    ):
        try:
            until(lambda: warm.find_server(settings) or child.poll() is not None)
            yield ensure_server(settings)
        finally:
            child.kill()
        assert child.wait() == -signal.SIGKILL
    until(lambda: warm._is_lock_free(settings))


@pytest.mark.parametrize(
    ("point", "is_told", "is_there"),
    [
        ("before the put", False, False),
        ("after the put", False, True),
        ("after the end was told", True, True),
    ],
)
async def test_killed_at_a_commit_point(kept: Settings, point: str, is_told: bool, is_there: bool) -> None:
    """Before it is written down, between that and telling, and after: told is kept, and kept is whole."""
    heard: list[dict[str, Any]] = []
    with dying(kept, point, 4) as address:
        async with contextlib.AsyncExitStack() as stack:
            talker = await stack.enter_async_context(talking(address, close_timeout=1))
            with contextlib.suppress(*GONE):
                await _chain(talker, heard)
        begun = [e["response"]["id"] for e in talker.heard if e["type"] == "response.created"]
    assert len(heard) == 3 + is_told
    address = ensure_server(kept)
    for response in heard:
        assert ask(address, "GET", f"/v1/responses/{response['id']}") == (200, response)
    status, last = ask(address, "GET", f"/v1/responses/{begun[3]}")
    assert (status == 200) == is_there
    if is_there:
        assert last["output"][0]["content"][0]["text"] == "Fine, thanks."
    _, items = ask(address, "GET", f"/v1/responses/{begun[2]}/input_items?order=asc&limit=100")
    texts = [item["content"][0]["text"] for item in items["data"]]
    assert texts == ["0", "Fine, thanks.", "1", "Fine, thanks.", "2"], "each once, in order"
    _, after = ask(address, "POST", "/v1/responses", {"input": "x", "previous_response_id": begun[2]})
    assert after["usage"]["input_tokens"] > heard[2]["usage"]["total_tokens"], "from the same log"
    check_database(kept)


async def _chain(talker: Talker, heard: list[dict[str, Any]]) -> None:
    """One turn after the other, each going on from the one before."""
    while True:
        previous = {"previous_response_id": heard[-1]["id"]} if heard else {}
        heard.append(await talker.complete(input=str(len(heard)), **previous))


async def test_killed_after_a_promise(kept: Settings) -> None:
    """A background response that was written down, but of which nobody was told, has failed."""
    with dying(kept, "after the promise", 1) as address, pytest.raises(GONE):
        ask(address, "POST", "/v1/responses", {"input": "x", "background": True})
    ensure_server(kept)
    with contextlib.closing(sqlite3.connect(kept.database)) as database:
        assert database.execute("SELECT status FROM responses").fetchall() == [("failed",)]
    check_database(kept)


async def test_killed_after_a_deletion(kept: Settings) -> None:
    """It is done, although nobody was told; what went on from it has all that it needs."""
    with dying(kept, "after the deletion", 1) as address:
        _, first = ask(address, "POST", "/v1/responses", {"input": "one"})
        _, second = ask(
            address, "POST", "/v1/responses", {"input": "two", "previous_response_id": first["id"]}
        )
        with pytest.raises(GONE):
            ask(address, "DELETE", f"/v1/responses/{first['id']}")
    address = ensure_server(kept)
    assert ask(address, "GET", f"/v1/responses/{first['id']}")[0] == 404
    assert ask(address, "GET", f"/v1/responses/{second['id']}") == (200, second)
    _, items = ask(address, "GET", f"/v1/responses/{second['id']}/input_items?order=asc")
    assert [item["content"][0]["text"] for item in items["data"]] == ["one", "Fine, thanks.", "two"]
    _, third = ask(address, "POST", "/v1/responses", {"input": "x", "previous_response_id": second["id"]})
    assert third["usage"]["input_tokens"] > second["usage"]["total_tokens"]
    check_database(kept)


# ---- at any instant -----------------------------------------------------------------------------------


class Witness:
    """Clients that write down what they were told."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, Any]] = {}  # responses whose end was told
        self.promised: set[str] = set()  # background responses
        self.deleted: set[str] = set()
        self.chains: list[list[str]] = []
        self.asked = 0

    async def over_socket(self, address: ServerAddress) -> None:
        chain: list[str] = []
        self.chains.append(chain)
        with contextlib.suppress(*GONE):
            async with talking(address, close_timeout=1) as talker:
                while True:
                    previous = {"previous_response_id": chain[-1]} if chain else {}
                    self.asked += 1
                    response = await talker.complete(input=f"{len(chain)}", **previous)
                    self.told[response["id"]] = response
                    chain.append(response["id"])

    async def over_http(self, address: ServerAddress) -> None:
        with contextlib.suppress(*GONE):
            while True:
                self.asked += 1
                _, response = await asyncio.to_thread(ask, address, "POST", "/v1/responses", {"input": "x"})
                self.told[response["id"]] = response
                if len(self.told) % 5 == 0:
                    path = f"/v1/responses/{response['id']}"
                    del self.told[response["id"]]  # from now on it may be there or not
                    await asyncio.to_thread(ask, address, "DELETE", path)
                    self.deleted.add(response["id"])

    async def in_background(self, address: ServerAddress) -> None:
        body = {"input": "x", "background": True}
        with contextlib.suppress(*GONE):
            while True:
                self.asked += 1
                _, begun = await asyncio.to_thread(ask, address, "POST", "/v1/responses", body)
                self.promised.add(begun["id"])
                _, found = await asyncio.to_thread(ask, address, "GET", f"/v1/responses/{begun['id']}")
                if found["status"] == "completed":
                    self.told[begun["id"]] = found

    def check(self, address: ServerAddress, news: set[str]) -> None:
        """All of it, on the next server; of what was told earlier only the status, to save time."""
        for response_id, response in self.told.items():
            status, found = ask(address, "GET", f"/v1/responses/{response_id}")
            assert status == 200, response_id
            if response_id in news:
                assert found == response
        for response_id in self.promised & news:
            status, found = ask(address, "GET", f"/v1/responses/{response_id}")
            assert status == 200
            assert found["status"] in ("completed", "failed")
        for response_id in self.deleted & news:
            assert ask(address, "GET", f"/v1/responses/{response_id}")[0] == 404
        for chain in [chain for chain in self.chains if chain and chain[-1] in news]:
            path = f"/v1/responses/{chain[-1]}/input_items?order=asc&limit=100"
            texts = [item["content"][0]["text"] for item in ask(address, "GET", path)[1]["data"]]
            answers = ["Fine, thanks."] * (len(chain) - 1)
            pairs = [text for number, answer in enumerate([*answers, ""]) for text in (f"{number}", answer)]
            assert texts == pairs[:-1][:100]


async def test_killed_at_any_instant(kept: Settings) -> None:
    """Again and again on the same database, with clients of every kind: nothing that was told is lost."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    witness = Witness()
    for _ in range(ROUNDS):
        address = ensure_server(kept)
        before = {*witness.told, *witness.promised, *witness.deleted}
        clients = [asyncio.create_task(witness.over_socket(address)) for _ in range(3)]
        clients += [asyncio.create_task(witness.over_http(address)) for _ in range(2)]
        clients.append(asyncio.create_task(witness.in_background(address)))
        goal = len(witness.told) + chance.randrange(1, 30)
        while len(witness.told) < goal:  # noqa: ASYNC110 - then at any instant
            await asyncio.sleep(0.001)
        await asyncio.sleep(chance.random() * 0.02)
        await asyncio.to_thread(kill, kept, address)
        await asyncio.wait(clients)
        for client in clients:
            client.result()
        news = {*witness.told, *witness.promised, *witness.deleted} - before
        await asyncio.to_thread(witness.check, await asyncio.to_thread(ensure_server, kept), news)
        check_database(kept)
    with contextlib.closing(sqlite3.connect(kept.database)) as database:
        (count,) = database.execute("SELECT COUNT(*) FROM responses").fetchone()
    assert len(witness.told) <= count <= witness.asked
