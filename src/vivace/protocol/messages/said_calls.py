"""The arguments of calls as the model wrote them, to be found again when a client sends its history back.

A client parses the arguments and sends an object. Written anew it may have other spaces or numbers, and
everything behind it in the prompt would be read again. Owns the memory of recent calls, and how arguments
that are not in it are written. Does not own what a family makes of them.
"""

import json
from collections import OrderedDict
from typing import Any

import msgspec

MAX_CALLS = 4096
MAX_CHARS = 32 * 1024 * 1024  # of all arguments together


class SaidCalls:
    def __init__(self, max_calls: int = MAX_CALLS, max_chars: int = MAX_CHARS) -> None:
        self._max_calls, self._max_chars = max_calls, max_chars
        self._said: OrderedDict[str, str] = OrderedDict()  # the oldest first
        self._chars = 0

    def remember(self, call_id: str, arguments: str) -> None:
        self._chars += len(arguments) - len(self._said.pop(call_id, ""))
        self._said[call_id] = arguments
        while self._chars > self._max_chars or len(self._said) > self._max_calls:
            _, oldest = self._said.popitem(last=False)
            self._chars -= len(oldest)

    def arguments(self, call_id: str, given: Any) -> str:
        """Return the arguments of a call as text: as it was said if that means what was given."""
        said = self._said.get(call_id)
        if said is not None and _is_same(said, given):
            return said
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _is_same(said: str, given: Any) -> bool:
    """Compare values and the order of keys."""
    try:
        meant = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return bool(meant == given) and json.dumps(meant, default=str) == json.dumps(given, default=str)
