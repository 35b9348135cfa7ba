"""Parsing a body without holding up everyone else.

Owns where that is done. Does not own what a body may hold (`protocol`), nor reading it (`sse`).
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

LARGE_BYTES = 256 * 1024  # above this (some ms) it is done beside the event loop

T = TypeVar("T")


async def parsed(parse: Callable[[bytes], T], body: bytes) -> T:
    return await asyncio.to_thread(parse, body) if len(body) > LARGE_BYTES else parse(body)
