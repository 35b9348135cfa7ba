"""Which models an upstream has: those of the settings, or those that it lists when it is asked.

Owns the list and when it is old. An upstream that does not answer has the models that it had; nobody waits
for the list but who asked for a name that is not known yet.
"""

import asyncio
import logging
import time
from typing import Any

from vivace.errors import VivaceError
from vivace.server.backends.upstream.dialects.reader import decode, items, mapping, string
from vivace.server.backends.upstream.errors import Problems
from vivace.server.backends.upstream.http import ConnectionPool
from vivace.server.backends.upstream.settings import Upstream

FRESH_S = 300.0
RETRY_S = 15.0  # after it could not be had
ANSWER_S = 5.0
MAX_BYTES = 8 * 1024 * 1024
MAX_MODELS = 10_000
MAX_NAME = 512

log = logging.getLogger(__name__)


class ModelList:
    def __init__(self, upstream: Upstream, link: ConnectionPool) -> None:
        self._upstream = upstream
        self._link = link
        self._names: dict[str, None] = dict.fromkeys(upstream.models or ())
        self._is_old_at = 0.0 if upstream.models is None else float("inf")
        self._asking: asyncio.Task[None] | None = None
        self._is_failing = False

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def names(self) -> list[str]:
        """Return the names as they are known now."""
        return list(self._names)

    def refresh(self) -> asyncio.Task[None] | None:
        """Ask for the list if it is old. The task ends when that is over, well or not."""
        if self._asking is None and time.monotonic() >= self._is_old_at:
            self._asking = asyncio.create_task(self._ask())
        return self._asking

    async def settled(self, within_s: float) -> None:
        """Wait for an answer that is on its way, but not for long."""
        if self._asking:
            await asyncio.wait([self._asking], timeout=within_s)

    async def close(self) -> None:
        self._is_old_at = float("inf")
        if self._asking:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        try:
            self._names = dict.fromkeys(await self._listed())
            self._is_old_at, self._is_failing = time.monotonic() + FRESH_S, False
        except (VivaceError, TimeoutError) as error:
            self._is_old_at = time.monotonic() + RETRY_S
            if not self._is_failing:  # said once, until it works again
                code = error.code if isinstance(error, VivaceError) else "upstream_timeout"
                log.warning("upstream %s does not list its models: %s", self._upstream.name, code)
            self._is_failing = True
        except Exception:
            self._is_old_at = time.monotonic() + FRESH_S
            log.exception("the models of upstream %s are lost", self._upstream.name)
        finally:
            self._asking = None

    async def _listed(self) -> list[str]:
        key = self._upstream.key()
        problems = Problems(self._upstream, key=key)
        async with (
            asyncio.timeout(ANSWER_S),
            self._link.ask("models", key=key, problems=problems, wait_s=ANSWER_S) as reply,
        ):
            if reply.status != 200:
                raise problems.status(reply.status, reply.headers, await reply.error_body())
            body = await reply.read_all(ANSWER_S, MAX_BYTES)
        try:
            return names_in(decode(body))
        except ValueError:
            raise problems.broken("lists its models in something that is no JSON.") from None


def names_in(answer: Any) -> list[str]:
    """Read names from OpenAI's shape and its relatives."""
    found = (
        answer if isinstance(answer, list) else mapping(answer).get("data") or mapping(answer).get("models")
    )
    names = [_name(entry) for entry in items(found)[:MAX_MODELS]]
    return [name for name in names if name and len(name) <= MAX_NAME and name.isprintable()]


def _name(entry: Any) -> str:
    known = mapping(entry)
    return string(entry) or next(
        (string(known[key]) for key in ("id", "slug", "name", "model") if known.get(key)), ""
    )
