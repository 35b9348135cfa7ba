"""Token logs, the sessions they belong to, and the responses that end somewhere in them.

Owns law 1: a log only grows, and a response is a length of one. So the tokens of a response are always
exactly the beginning of whatever continues it. In memory for now; a database comes behind `ResponseStore`.
Does not talk to the engine.
"""

import secrets
from array import array
from collections import OrderedDict
from collections.abc import Iterable

MAX_RESPONSES = 512


class TokenLog:
    """Tokens that are only ever added to. Four bytes a token."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens = array("i", tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        self._tokens.extend(tokens)

    def first(self, length: int) -> list[int]:
        assert length <= len(self._tokens)
        return self._tokens[:length].tolist()

    def since(self, start: int) -> list[int]:
        return self._tokens[start:].tolist()


class Session:
    """A log, and which engine process holds it open. At most one turn runs in it."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.name = f"s_{secrets.token_hex(8)}"
        self.log = TokenLog(tokens)
        self.is_busy = False
        self.open_in: object | None = None  # the engine's life that holds it
        self.known_tokens = 0  # how much of the log that engine has

    def hear(self, token: int) -> None:
        """A token that the engine made: it has it already."""
        self.log.extend((token,))
        self.known_tokens += 1

    def news(self) -> list[int]:
        """What the engine does not have yet; from now on it does."""
        tokens = self.log.since(self.known_tokens)
        self.known_tokens = len(self.log)
        return tokens


class StoredResponse:
    """Where a response ended."""

    def __init__(self, session: Session, model: str, instructions: str | None) -> None:
        self.session = session
        self.length = len(session.log)
        self.model = model
        self.instructions = instructions

    def tokens(self) -> list[int]:
        return self.session.log.first(self.length)

    def continuation(self) -> Session:
        """The session itself if nothing came after this response, else a fork of it."""
        if not self.session.is_busy and len(self.session.log) == self.length:
            return self.session
        return Session(self.tokens())


class ResponseStore:
    """The latest responses by id; the one that was longest not used is forgotten first."""

    def __init__(self, capacity: int = MAX_RESPONSES) -> None:
        self._capacity = capacity
        self._by_id: OrderedDict[str, StoredResponse] = OrderedDict()

    def put(self, response_id: str, response: StoredResponse) -> None:
        self._by_id[response_id] = response
        if len(self._by_id) > self._capacity:
            self._by_id.popitem(last=False)

    def get(self, response_id: str) -> StoredResponse | None:
        if found := self._by_id.get(response_id):
            self._by_id.move_to_end(response_id)
        return found
