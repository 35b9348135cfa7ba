"""Token logs, the sessions they belong to, and the responses that end somewhere in them.

Owns law 1: a log only grows, and a response is a length of one. So the tokens of a response are always
exactly the beginning of whatever continues it. Does not own which responses are known (`library`), and does
not talk to the engine.
"""

import secrets
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, overload

import msgspec

from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.tools import Tool


class TokenLog(Sequence[int]):
    """Tokens that are only ever added to. Four bytes a token."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens = array("i", tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self._tokens[index]

    def extend(self, tokens: Iterable[int]) -> None:
        self._tokens.extend(tokens)

    def copy(self) -> "array[int]":
        return self._tokens[:]

    def first(self, length: int) -> list[int]:
        assert length <= len(self._tokens)
        return self._tokens[:length].tolist()

    def since(self, start: int) -> list[int]:
        return self._tokens[start:].tolist()

    def shared_with(self, other: "TokenLog") -> int:
        """Return how many tokens both begin with. Slices are compared, at C speed."""
        mine, theirs = self._tokens, other._tokens
        low, high = 0, min(len(mine), len(theirs))
        while low < high:
            middle = (low + high + 1) // 2
            if mine[low:middle] == theirs[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low

    def between(self, start: int, end: int) -> bytes:
        """Return tokens in the form in which the store keeps them."""
        part = self._tokens[start:end]
        if sys.byteorder == "big":
            part.byteswap()
        return part.tobytes()


class Source(NamedTuple):
    """A session to fork from, and how many tokens of it."""

    session: "Session"
    length: int


class Session:
    """A log, and which engine process holds it open. At most one turn writes into it."""

    def __init__(self, tokens: Iterable[int] = (), tenant: str = "") -> None:
        self.name = f"s_{secrets.token_hex(8)}"
        self.log = TokenLog(tokens)
        self.tenant = tenant
        self.writer: object | None = None  # the turn that runs in it
        self.provisional_turn: object | None = (
            None  # the turn that prefills a provisional tail behind its end
        )
        self.open_in: object | None = None  # the engine process that holds it
        self.sent_tokens = 0  # how much of the log that engine has
        self.source: Source | None = None  # the session whose KV it begins with, if it is a fork

    @property
    def is_busy(self) -> bool:
        return self.writer is not None or self.provisional_turn is not None

    def release(self, turn: object) -> None:
        """Let go of a turn that is over."""
        if self.writer is turn:
            self.writer = None
        if self.provisional_turn is turn:
            self.provisional_turn = None

    def add_generated(self, tokens: Sequence[int]) -> None:
        """Add tokens that the engine made, and so has already."""
        self.log.extend(tokens)
        self.sent_tokens += len(tokens)

    def take_unsent(self) -> list[int]:
        """Return the tokens that the engine does not have, and count them as sent."""
        tokens = self.log.since(self.sent_tokens)
        self.sent_tokens = len(self.log)
        return tokens


class LogContents(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a log has already and need not get again: instructions, tools."""

    instructions: str | None = None
    tools: str = ""  # a digest
    inline_tools: tuple[Tool, ...] = ()  # those that came as an input item: they hold until others come
    is_interrupted: bool = False  # the last answer was cut short by the user


class StoredResponse:
    """A response that can be continued: where it ends in its log, and its items."""

    def __init__(
        self,
        response_id: str,
        *,
        tenant: str,
        connection: str,
        is_stored: bool,
        model: str,
        log_contents: LogContents,
        session: Session | None,
        length: int = 0,
        parent: "StoredResponse | None" = None,
        follows: bool = True,
        input: list[InputItem] | None = None,
    ) -> None:
        self.id = response_id
        self.tenant = tenant
        self.connection = connection  # the one that it is known on, if it is not stored
        self.is_stored = is_stored
        self.model = model
        self.log_contents = log_contents
        self.session = session  # None: an upstream's
        self.length = length
        self.parent = parent
        self.follows = follows  # its log begins with the parent's; not so where another model went on
        self.input = input or []
        self.output: list[dict[str, Any]] = []  # items, from when the response is over

    def tokens(self) -> list[int]:
        return self.session.log.first(self.length) if self.session else []

    def continuation(self) -> Session:
        """Return the session if nothing came after this response, else a fork of it."""
        session = self.session
        if session and not session.writer and len(session.log) == self.length:
            return session
        return Session(self.tokens(), self.tenant)

    def call_name(self, call_id: str) -> str:
        """Return the tool of a call in this response or an earlier one; "" if unknown."""
        known: StoredResponse | None = self
        while known:
            for item in known.output:
                if item.get("call_id") == call_id:
                    return str(item.get("name", ""))
            known = known.parent
        return ""
