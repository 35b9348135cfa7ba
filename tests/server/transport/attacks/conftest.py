"""After each attack the server must be as it was."""

from collections.abc import Iterator

import pytest

from tests.server.serving import fetch, status_of, until
from tests.server.transport.attacks.attacking import (
    memory_mib,
)
from vivace.client.http import get
from vivace.client.warm import ServerAddress
from vivace.config import Settings

MOST_MIB = 700  # of the server, whatever comes; an idle one has 60


@pytest.fixture(autouse=True)
def unharmed(served: Settings, address: ServerAddress) -> Iterator[None]:
    """After each attack the same process answers, nothing runs, and its memory is bounded."""
    yield
    assert fetch(address, "POST", "/v1/responses", {"input": "hi", "store": False})[0] == 200
    assert until(lambda: status_of(served).answers == 0)
    assert until(lambda: status_of(served).engine.turns == 0)
    assert get(address.port, "/healthz")[0] == 200
    assert status_of(served).pid == address.pid
    assert memory_mib(address) < MOST_MIB
