"""Which function answers which request.

Owns the table, and that every request of the protocol is in it once. Does not own the functions.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from vivace.web.messages.request import Request

if TYPE_CHECKING:
    from vivace.web.face import Face

R = TypeVar("R", bound=Request)
Answering = Callable[["Face", R], Awaitable[object]]  # returns a struct of `answers`, or None for `{}`

_table: dict[type[Request], Callable[["Face", Any], Awaitable[object]]] = {}


def answers(kind: type[R]) -> Callable[[Answering[R]], Answering[R]]:
    """Let a function answer this kind of request."""

    def add(function: Answering[R]) -> Answering[R]:
        assert kind not in _table, kind
        _table[kind] = function
        return function

    return add


async def answer(face: "Face", request: Request) -> object:
    """Answer a request. Raise what is wrong with it."""
    return await _table[type(request)](face, request)


def answered_kinds() -> set[type[Request]]:
    """Return the kinds of requests that have an answer."""
    return set(_table)
