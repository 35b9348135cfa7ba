"""Prefill while the user types: when Enter comes, little is left to read.

Owns how much of the draft is warm, as it is told. It is best effort: what goes wrong here goes wrong again,
and is said, when the message is sent. Does not own the requests in flight (`client.typed_ahead`).
"""

from typing import Any

from vivace.agent.conversation.connection import Connection
from vivace.agent.events.talk import PromptWarmed
from vivace.agent.presenter import Presenter
from vivace.client.typed_ahead import TypedAhead
from vivace.protocol.shapes.events import Response

TOKENS_PER_CHAR = 0.3  # until the first draft was counted


class Prefiller:
    def __init__(self, connection: Connection, presenter: Presenter, lane: str) -> None:
        self._connection = connection
        self._presenter = presenter
        self._lane = lane
        self._typed: TypedAhead | None = None
        self._draft = ""  # the last message of the latest request
        self._warm = ""  # that of the last one that was prefilled
        self._warm_tokens = 0  # with all that stands before it

    async def update(self, request: dict[str, Any]) -> None:
        """Prefill this request next. What was given before and has not begun is forgotten."""
        if self._typed is None:
            client = await self._connection.client()
            self._typed = TypedAhead(client, lane=self._lane, on_prefilled=self._prefilled)
            await self._typed.__aenter__()
        self._draft = request["input"][-1]["content"]
        self._typed.update(request)
        self._tell()

    async def finish(self) -> None:
        """Stop: the real turn comes now."""
        typed, self._typed = self._typed, None
        self._draft, self._warm, self._warm_tokens = "", "", 0
        if typed is not None:
            await typed.__aexit__(None, None, None)

    def _prefilled(self, request: dict[str, Any], response: Response) -> None:
        self._warm = request["input"][-1]["content"]
        self._warm_tokens = response.usage.input_tokens if response.usage else 0
        self._tell()

    def _tell(self) -> None:
        """Say how much is warm. What differs from the prefilled draft is estimated by its length."""
        common = _common(self._warm, self._draft)
        stale = round((len(self._warm) - common) * TOKENS_PER_CHAR)
        missing = round((len(self._draft) - common) * TOKENS_PER_CHAR)
        warm = max(0, self._warm_tokens - stale)
        self._presenter.show(PromptWarmed(warm, warm + missing))


def _common(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
