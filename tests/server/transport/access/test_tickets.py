"""Tickets: a browser's WebSocket, which cannot send the token in a header."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.server.inside import Inside, served_here
from tests.server.serving import fetch, script
from tests.server.talking import Talker
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.server.caller import Caller
from vivace.server.transport.access.keys import REMEMBER_S, add_key, remove_key
from vivace.server.transport.access.tickets import MAX_PER_KEY, MAX_TICKETS, VALID_S, Tickets, ticket_in

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("tickets")
    settings = Settings(
        cache_dir=folder / "cache",
        state_dir=folder,
        port=0,
        threads=1,
        model=script(folder, replies={"": "Hello."}),
        allow_scripted=True,
    )
    async with served_here(settings) as served:
        yield served


async def ticket_of(address: ServerAddress, **headers: str) -> str:
    status, answer = await asyncio.to_thread(fetch, address, "POST", "/v1/vivace/tickets", {}, **headers)
    assert (status, answer["object"], answer["expires_in_s"]) == (200, "ticket", VALID_S)
    return str(answer["ticket"])


def page(address: ServerAddress, *subprotocols: str, origin: str | None = None) -> connect:
    """A socket as a page opens it: with an Origin, and without a header of its own."""
    return connect(
        address.socket_url,
        subprotocols=[Subprotocol(name) for name in subprotocols],
        origin=origin or f"http://127.0.0.1:{address.port}",  # type: ignore[arg-type]
        proxy=None,
    )


async def complete(connection: ClientConnection) -> str:
    return str((await Talker(connection).complete(input="hi"))["status"])


async def refused(address: ServerAddress, *subprotocols: str, origin: str | None = None) -> int:
    with pytest.raises(InvalidStatus) as error:
        async with page(address, *subprotocols, origin=origin):
            pass
    return error.value.response.status_code


async def test_a_ticket_opens_one_socket(inside: Inside) -> None:
    """The page's socket works like any other, the ticket is not sent back, and a second use is refused."""
    ticket = await ticket_of(inside.address)
    async with page(inside.address, "vivace", f"bearer.{ticket}") as connection:
        assert connection.subprotocol == "vivace"
        assert await complete(connection) == "completed"
    assert await refused(inside.address, "vivace", f"bearer.{ticket}") == 401


async def test_a_page_of_another_site_is_refused_with_a_ticket(inside: Inside) -> None:
    """Origin is checked before the ticket is looked at, which stays valid for its owner."""
    ticket = await ticket_of(inside.address)
    foreign = await refused(inside.address, "vivace", f"bearer.{ticket}", origin="http://evil.example")
    assert foreign == 403
    async with page(inside.address, "vivace", f"bearer.{ticket}") as connection:
        assert await complete(connection) == "completed"


async def test_what_is_no_ticket_opens_nothing(inside: Inside) -> None:
    """Not a wrong one, not two, not the token itself, and a ticket is no token."""
    first, second = await ticket_of(inside.address), await ticket_of(inside.address)
    wrong = first[:-1] + ("A" if first[-1] != "A" else "B")
    assert await refused(inside.address, "vivace", f"bearer.{wrong}") == 401
    assert await refused(inside.address, "vivace", f"bearer.{first}", f"bearer.{second}") == 401
    assert await refused(inside.address, "vivace", f"bearer.{inside.address.token}") == 401
    assert await refused(inside.address, "vivace") == 401
    status, _ = await asyncio.to_thread(
        fetch, inside.address, "GET", "/v1/models", Authorization=f"Bearer {first}"
    )
    assert status == 401


async def test_a_ticket_is_for_who_has_the_token(inside: Inside) -> None:
    """Without it, or from another site, there is no ticket."""
    for headers, expected in (({"Authorization": ""}, 401), ({"Origin": "http://evil.example"}, 403)):
        status, _ = await asyncio.to_thread(
            fetch, inside.address, "POST", "/v1/vivace/tickets", {}, **headers
        )
        assert status == expected


async def test_a_socket_belongs_to_the_key_that_asked(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turns are the key's, and a ticket of a removed key opens nothing."""
    monkeypatch.setattr("vivace.server.transport.access.keys.REMEMBER_S", 0.0)
    assert REMEMBER_S == 3.0
    key, secret = await add_key(inside.store, "page")
    address = msgspec.structs.replace(inside.address, token=secret)
    async with page(address, "vivace", f"bearer.{await ticket_of(address)}"):
        (session,) = inside.sockets._open
        assert (session._caller.key, session._caller.tenant) == (key.id, "page")
    late = await ticket_of(address)
    await remove_key(inside.store, key.id)
    assert await refused(address, "vivace", f"bearer.{late}") == 401


async def test_a_ticket_is_valid_once_and_for_30_seconds() -> None:
    """The second use finds nothing, and so does one that comes too late."""
    clock = Clock()
    tickets = Tickets(clock)
    ticket, late = tickets.issue(Caller("k")), tickets.issue(Caller("k"))
    assert tickets.redeem(ticket) == Caller("k")
    assert tickets.redeem(ticket) is None
    clock.now = VALID_S
    assert tickets.redeem(late) is None
    assert not tickets._issued


async def test_tickets_are_bounded() -> None:
    """A key's oldest gives way to its newest, never another key's; all together are bounded, too."""
    tickets = Tickets(Clock())
    other = tickets.issue(Caller("other"))
    own = [tickets.issue(Caller("k")) for _ in range(MAX_PER_KEY + 1)]
    assert tickets.redeem(own[0]) is None
    assert tickets.redeem(own[1]) == Caller("k")
    assert tickets.redeem(other) == Caller("other")
    for number in range(MAX_TICKETS + 10):
        tickets.issue(Caller(f"k{number}"))
    assert len(tickets._issued) == MAX_TICKETS


@pytest.mark.parametrize(
    "given", ["", "vt_", "vt_é", "vt_" + "0" * 59, "vv_" + "x" * 43], ids=lambda given: given[:4] or "nothing"
)
async def test_what_has_another_form_is_no_ticket(given: str) -> None:
    """It is refused, whatever it is, and no error of ours."""
    tickets = Tickets(Clock())
    tickets.issue(Caller())
    assert tickets.redeem(given) is None


async def test_the_ticket_among_the_subprotocols() -> None:
    """There is one, or it is not known which is meant."""
    assert ticket_in(["vivace", "bearer.a"]) == "a"
    assert ticket_in(["bearer.a", "bearer.b"]) is None
    assert ticket_in(["vivace"]) is None
