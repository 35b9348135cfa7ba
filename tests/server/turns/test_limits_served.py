"""Limits, keys and the line on a real server: what clients are told, over HTTP and on sockets alike."""

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from openai.types.responses.responses_server_event import ResponseWsError

from tests.server.serving import fetch, script, send, sse_events, status_of, until, until_ready
from tests.server.talking import check_numbers, post, talking
from vivace.cli.server.keys import keys as command
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings

NewKey = Callable[..., ServerAddress]
RATE = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")
RETRY = ("retry-after", "retry-after-ms")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Eight turns at once, four in line."""
    folder = tmp_path_factory.mktemp("limits")
    model = script(
        folder, replies={"long": "word " * 150, "": "Hello there."}, step_ms=2, context_tokens=16384
    )
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    settings = settings.having(max_running=8, max_waiting=4)
    warm.ensure_server(settings)
    until_ready(settings)
    yield settings
    assert warm.stop_server(settings)


@pytest.fixture
def local(small: Settings) -> Iterator[ServerAddress]:
    yield warm.ensure_server(small)
    assert until(lambda: status_of(small).answers == 0)


def keys(settings: Settings, *words: str) -> str:
    """`vivace keys …`, beside the running server."""
    folders = {"VIVACE_STATE_DIR": str(settings.state_dir), "VIVACE_CACHE_DIR": str(settings.cache_dir)}
    done = CliRunner().invoke(command, list(words), env=folders, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def new_key(small: Settings, local: ServerAddress, request: pytest.FixtureRequest) -> NewKey:
    """The server's address with a key of its own, that has these limits."""
    made: list[str] = []

    def make(**limits: int) -> ServerAddress:
        made.append(f"{request.node.name[:50]}-{len(made)}")
        options = [f"--{name.replace('_', '-')}={amount}" for name, amount in limits.items()]
        return msgspec.structs.replace(local, token=keys(small, "add", made[-1], *options).split()[0])

    return make


def ask(address: ServerAddress, path: str = "/v1/responses", **fields: Any) -> http.client.HTTPResponse:
    """The answer, with its body read as `vivace_body`."""
    body = (
        {"messages": [{"role": "user", "content": "hi"}]} if path.endswith("completions") else {"input": "hi"}
    )
    answer = send(address, "POST", path, body | fields)
    answer.vivace_body = answer.read()  # type: ignore[attr-defined]
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    return answer


# ---- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_requests_a_minute(new_key: NewKey, path: str, stream: bool) -> None:
    """Each answer tells what is left; the one too many is 429, and tells when to come again."""
    address = new_key(requests_per_minute=2)
    for left in ("1", "0"):
        answer = ask(address, path, stream=stream)
        assert answer.status == 200
        assert [answer.headers[name] for name in RATE[:2]] == ["2", left]
    refused = ask(address, path, stream=stream)
    assert refused.status == 429
    error = json.loads(refused.vivace_body)["error"]  # type: ignore[attr-defined]
    assert error["code"] == "rate_limit_exceeded"
    assert "try again in" in error["message"]
    assert [refused.headers[name] for name in RATE[:2]] == ["2", "0"]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert int(refused.headers["retry-after-ms"]) <= 1000 * int(refused.headers["retry-after"])
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")


async def test_a_socket_tells_the_same(new_key: NewKey) -> None:
    """The error frame has the status, the words and the headers of the HTTP answer."""
    address = await asyncio.to_thread(new_key, requests_per_minute=1)
    async with talking(address) as talker:
        assert (await talker.complete(input="hi"))["status"] == "completed"
        await talker.create(input="hi", stream_id="a")
        frame = await talker.until_type("error")
        over_http = await asyncio.to_thread(ask, address)
    assert (frame["status"], frame["stream_id"]) == (429, "a")
    told = json.loads(over_http.vivace_body)["error"]  # type: ignore[attr-defined]
    assert {name: frame["error"][name] for name in ("code", "type")} == {n: told[n] for n in ("code", "type")}
    assert set(frame["headers"]) == {*RATE, *RETRY}
    error = ResponseWsError.model_validate(frame).error
    assert error.headers == frame["headers"], "the SDK reads those in the error, Codex those beside it"
    assert "headers" not in told
    assert set(frame["headers"]) <= {name.lower() for name in over_http.headers}
    for name in RATE[:2]:
        assert frame["headers"][name] == over_http.headers[name]
    assert int(frame["headers"]["retry-after"]) - int(over_http.headers["retry-after"]) in (0, 1, 2)


def test_tokens_are_taken_and_given_back(new_key: NewKey) -> None:
    """A guess is reserved, and settled when the turn is over: many small ones fit into a minute."""
    address = new_key(tokens_per_minute=1500)
    left = []
    for _ in range(5):
        answer = ask(address, store=False)
        assert answer.status == 200
        left.append(int(answer.headers["x-ratelimit-remaining-tokens"]))
    assert all(0 <= each < 1500 - 1024 for each in left), "the guess is taken at the start"
    assert left[-1] < left[0], "what was used is used"


def test_what_can_never_pass_is_said_so(new_key: NewKey) -> None:
    """More tokens than the key has in a minute: waiting would not help, and the answer says so."""
    refused = ask(new_key(tokens_per_minute=1100), input="word " * 2000)
    assert refused.status == 429
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers


@pytest.mark.parametrize("leave", ["socket", "stream", "json"])
async def test_who_leaves_gets_the_rest_back(new_key: NewKey, small: Settings, leave: str) -> None:
    """What was reserved for a turn whose client went away is free for the next."""
    address = await asyncio.to_thread(new_key, tokens_per_minute=1500)
    if leave == "socket":
        async with talking(address, close_timeout=1) as talker:
            await talker.create(input="long")
            await talker.said()
            talker.connection.transport.abort()
    else:
        _, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(post(address, {"input": "long", "stream": leave == "stream"}))
        await asyncio.to_thread(until, lambda: status_of(small).engine.turns == 1)
        writer.close()
    await asyncio.to_thread(until, lambda: status_of(small).answers == 0)
    assert (await asyncio.to_thread(ask, address)).status == 200


@pytest.mark.parametrize(
    ("full", "other"), [("requests_per_minute", "flex"), ("background_requests_per_minute", "auto")]
)
def test_each_tier_has_its_own(new_key: NewKey, full: str, other: str) -> None:
    """Who has used up the one still has the other."""
    address = new_key(**{full: 1})
    mine = "auto" if other == "flex" else "flex"
    assert [ask(address, service_tier=mine).status for _ in range(2)] == [200, 429]
    assert [ask(address, service_tier=other).status for _ in range(2)] == [200, 200]


def test_each_key_has_its_own(new_key: NewKey, local: ServerAddress) -> None:
    """One key's limits are not another's; the token of this user has none."""
    one, two = new_key(requests_per_minute=1), new_key(requests_per_minute=1)
    assert [ask(one).status, ask(one).status, ask(two).status] == [200, 429, 200]
    mine = [ask(local) for _ in range(3)]
    assert [answer.status for answer in mine] == [200] * 3
    assert not [name for name in mine[0].headers if name.lower().startswith("x-ratelimit")]


# ---- keys ---------------------------------------------------------------------------------------------


async def test_a_removed_key_stops_on_an_open_socket(new_key: NewKey, small: Settings) -> None:
    """Within seconds: a socket that is open already gets 401 for what it asks next, and so does HTTP."""
    address = await asyncio.to_thread(new_key)
    async with talking(address) as talker:
        assert (await talker.complete(input="hi"))["status"] == "completed"
        known = json.loads(await asyncio.to_thread(keys, small, "list", "--json"))
        (mine,) = [key for key in known if key["name"].startswith("test_a_removed_key")]
        await asyncio.to_thread(keys, small, "rm", mine["id"])
        while True:
            await talker.create(input="hi")
            event = await talker.until_type("error", "response.completed")
            if event["type"] == "error":
                break
        assert (event["status"], event["error"]["code"]) == (401, "invalid_api_key")
    assert (await asyncio.to_thread(ask, address)).status == 401


def test_tenants_know_nothing_of_each_other(new_key: NewKey, local: ServerAddress) -> None:
    """Another key's response is not there: to read, to go on from, to delete, to cancel."""
    mine, other = new_key(), new_key()
    _, stored = fetch(mine, "POST", "/v1/responses", {"input": "hi"})
    _, running = fetch(mine, "POST", "/v1/responses", {"input": "long", "background": True})
    for stranger in (other, local):
        for response in (stored, running):
            path = f"/v1/responses/{response['id']}"
            for method, url in (("GET", path), ("DELETE", path), ("POST", f"{path}/cancel")):
                assert fetch(stranger, method, url)[0] == 404
            assert fetch(stranger, "GET", f"{path}/input_items")[0] == 404
            body = {"input": "more", "previous_response_id": response["id"]}
            code = fetch(stranger, "POST", "/v1/responses", body)[1]["error"]["code"]
            assert code == "previous_response_not_found"
    assert fetch(mine, "GET", f"/v1/responses/{stored['id']}") == (200, stored)
    assert fetch(mine, "DELETE", f"/v1/responses/{running['id']}")[0] == 200


# ---- the line -----------------------------------------------------------------------------------------


async def test_places_in_the_line_are_told(local: ServerAddress) -> None:
    """Created as queued, each place with an estimate, then in progress: on a socket and as a stream."""
    async with talking(local) as crowd, talking(local) as talker:
        for number in range(8):
            await crowd.create(input="long", stream_id=f"lane{number}")
        for _ in range(8):
            await crowd.created()
        await talker.create(input="hi", stream_id="first")
        await talker.until_type("response.queued")
        streaming = asyncio.create_task(
            asyncio.to_thread(
                lambda: sse_events(send(local, "POST", "/v1/responses", {"input": "hi", "stream": True}))
            )
        )
        await talker.ended()
        over_stream = await streaming
        for events in (talker.heard, over_stream):
            check_numbers(events)
            kinds = [event["type"] for event in events]
            assert kinds[:2] == ["response.created", "response.queued"]
            assert events[0]["response"]["status"] == "queued"
            queued = [event for event in events if event["type"] == "response.queued"]
            assert kinds.index("response.in_progress") == len(queued) + 1
            places = [event["response"]["vivace"]["queue"] for event in queued]
            assert all(place["position"] >= 1 and place["estimate_s"] > 0 for place in places)
            assert kinds[-1] == "response.completed"
        for _ in range(8):
            await crowd.ended()
        check_numbers(crowd.heard)


def test_a_background_response_in_line_has_all_that_was_asked(local: ServerAddress, small: Settings) -> None:
    """Events about its place leave that out; whoever retrieves it sees it at any time."""
    body = {"input": "long", "background": True, "instructions": "Be brief."}
    begun = [fetch(local, "POST", "/v1/responses", body) for _ in range(14)]
    ids = [answer["id"] for status, answer in begun if status == 200]
    waiting = [answer["id"] for status, answer in begun if status == 200 and answer["status"] == "queued"]
    assert len(waiting) >= 2
    fetch(local, "POST", f"/v1/responses/{waiting[0]}/cancel")

    def seen() -> Any:
        """When its place has changed, or is none any more."""
        _, response = fetch(local, "GET", f"/v1/responses/{waiting[-1]}")
        assert response["instructions"] == "Be brief."
        return response.get("vivace") or response["status"] != "queued"

    until(seen)
    for each in ids:
        fetch(local, "POST", f"/v1/responses/{each}/cancel")
    until(lambda: status_of(small).answers == 0)


async def test_a_full_line_is_429(new_key: NewKey, local: ServerAddress, small: Settings) -> None:
    """No more may wait: the same answer over HTTP and in a frame, with what is left of the key's limits."""
    address = await asyncio.to_thread(new_key, requests_per_minute=1000)
    async with talking(local, close_timeout=1) as crowd, talking(address, close_timeout=1) as talker:
        for number in range(13):
            await crowd.create(input="long", stream_id=f"lane{number}", service_tier="flex")
        await crowd.until_type("error")
        refused = await asyncio.to_thread(ask, address, service_tier="flex")
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        await talker.create(input="hi", service_tier="flex")
        frame = await talker.until_type("error")
        assert (frame["status"], frame["error"]["code"]) == (429, "rate_limit_exceeded")
        assert set(frame["headers"]) == set(RETRY)
        hasty = [talker.create(input="long", stream_id=f"lane{number}") for number in range(10)]
        await asyncio.gather(*hasty)
        frame = await talker.until_type("error")
        assert frame["headers"]["x-ratelimit-limit-requests"] == "1000"
        for each in (crowd, talker):
            each.connection.transport.abort()
    await asyncio.to_thread(until, lambda: status_of(small).answers == 0)


async def test_realtime_does_not_wait_for_background(local: ServerAddress, small: Settings) -> None:
    """As many background turns as there is room for: a realtime one is answered while they still run."""
    begun = []
    for _ in range(11):
        status, answer = await asyncio.to_thread(
            fetch, local, "POST", "/v1/responses", {"input": "long", "background": True}
        )
        if status == 200:
            begun.append(answer["id"])
    assert len(begun) >= 8
    async with talking(local) as talker:
        assert (await talker.complete(input="hi"))["status"] == "completed"
        assert "response.queued" not in [event["type"] for event in talker.heard]
    states = [
        (await asyncio.to_thread(fetch, local, "GET", f"/v1/responses/{each}"))[1]["status"] for each in begun
    ]
    assert {"queued", "in_progress"} & set(states), "they were still at it"
    for each in begun:
        await asyncio.to_thread(fetch, local, "POST", f"/v1/responses/{each}/cancel")
    await asyncio.to_thread(until, lambda: status_of(small).answers == 0)


# ---- Anthropic's API ----------------------------------------------------------------------------------

MESSAGE = {"model": "claude-opus-4-8", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}


def post_message(address: ServerAddress, path: str = "/v1/messages", **fields: Any) -> tuple[int, Any]:
    key = {"Authorization": "", "x_api_key": address.token}
    return fetch(address, "POST", path, MESSAGE | fields, **key)


def test_a_key_in_its_own_header_has_its_limits(new_key: NewKey) -> None:
    """The one too many is a 429 of Anthropic's; prompts that are only counted do not count."""
    address = new_key(requests_per_minute=1)
    assert post_message(address)[0] == 200
    status, refused = post_message(address)
    assert (status, refused["error"]["type"]) == (429, "rate_limit_error")
    assert post_message(address, "/v1/messages/count_tokens")[0] == 200


async def test_counting_takes_no_place(local: ServerAddress, small: Settings) -> None:
    """A dozen at once are answered while no more turns may wait. Claude Code does that for `/context`."""
    path = "/v1/messages/count_tokens"
    async with talking(local, close_timeout=1) as crowd:
        for number in range(13):
            await crowd.create(input="long", stream_id=f"lane{number}", service_tier="flex")
        await crowd.until_type("error")
        answers = await asyncio.gather(*(asyncio.to_thread(post_message, local, path) for _ in range(12)))
        assert {status for status, _ in answers} == {200}
        assert len({answer["input_tokens"] for _, answer in answers}) == 1
        crowd.connection.transport.abort()
    await asyncio.to_thread(until, lambda: status_of(small).answers == 0)
