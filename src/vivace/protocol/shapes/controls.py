"""Messages on a WebSocket about a response that runs: end it, say something to it, let it think no more.

Owns their shapes, and reading them. Does not own what they do (`connection`).
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.parsing import decode


class ResponseCancel(msgspec.Struct):
    """End a running response. What it said so far stays; it ends as `response.incomplete`."""

    response_id: str  # the response to end


class ResponseSteer(msgspec.Struct):
    """Say something to a running response. It ends as it is, and a new response that has read this follows.

    OpenAI's dialect of steering. What is wrong with a steer is told in an event of its own.
    """

    previous_response_id: str  # the response that runs
    input: msgspec.Raw  # a string, or messages of the user's with `input_text`
    unknown: list[str] = []  # internal: names of other fields, for which the steer is refused


class _Target(msgspec.Struct):
    previous_response_id: str


class ResponseInterrupt(msgspec.Struct):
    """End a running response. The next `response.create` continues from it. Codex's dialect of steering."""

    response_id: str  # the response to end
    mode: str = ""  # `discard_partial_items`: an item that is not whole is forgotten


class ResponseAnswerNow(msgspec.Struct):
    """Let a running response think no more and begin its answer. The same response goes on, on the same KV.

    No effect on a response that does not think, or that another server makes.
    """

    response_id: str  # the response that thinks


class Envelope(msgspec.Struct):
    """The part of a message that can be read before the rest is checked."""

    type: str = ""
    stream_id: Any = None


def parse_envelope(data: bytes | str) -> Envelope:
    return decode(data, Envelope)


def parse_cancel(data: bytes | str) -> ResponseCancel:
    return decode(data, ResponseCancel)


def parse_interrupt(data: bytes | str) -> ResponseInterrupt:
    return decode(data, ResponseInterrupt)


def parse_answer_now(data: bytes | str) -> ResponseAnswerNow:
    return decode(data, ResponseAnswerNow)


def parse_steer(data: bytes | str) -> ResponseSteer:
    given = decode(data, dict[str, msgspec.Raw])
    target = decode(data, _Target).previous_response_id
    unknown = sorted(given.keys() - {"type", "previous_response_id", "input"})
    return ResponseSteer(target, given.get("input", msgspec.Raw(b"null")).copy(), unknown)
