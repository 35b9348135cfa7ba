"""From bytes to a checked request: a refusal names the field that is wrong.

Owns reading JSON into shapes and what a request must obey beyond its types. Does not own the shapes
(`requests`), nor the limits on their sizes (`sizes`).
"""

import re
from typing import TypeVar

import msgspec

from vivace.protocol.shapes.items import check_depth, check_item
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.shapes.sizes import MAX_FIELD_BYTES, check_fields, check_pieces
from vivace.protocol.shapes.tools import parse_choice

MAX_METADATA = 16
MAX_ITEMS = 10_000

T = TypeVar("T")


class _Sized(msgspec.Struct):
    """The fields that may hold anything, kept as raw JSON."""

    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()
    client_metadata: msgspec.Raw = msgspec.Raw()
    include: msgspec.Raw = msgspec.Raw()
    logit_bias: msgspec.Raw = msgspec.Raw()
    conversation: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


def parse_create(data: bytes | str) -> ResponseCreate:
    """Return a checked request; raise a `Refusal` that names the field that is wrong."""
    check_sizes(data, _Sized)
    request = decode(data, ResponseCreate)
    _check(request)
    return request


def decode(data: bytes | str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        found = re.search(r"`\$\.?([^`]*)`$", str(error))
        param = found[1] if found and found[1] else None
        raise Refusal(f"{error}.", code="invalid_value", param=param) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Refusal(f"The body is not JSON: {error}.", code="invalid_json") from error
    except RecursionError as error:
        raise Refusal("The JSON is nested too deeply.", code="invalid_json") from error


def check_sizes(data: bytes | str, sized: type[msgspec.Struct]) -> None:
    """Raise a `Refusal` for what is too large; `sized` has the fields that may hold anything."""
    if len(data) > MAX_FIELD_BYTES:
        check_pieces(data)  # first: this one lets other threads run
        check_fields(decode(data, sized))


def _check(request: ResponseCreate) -> None:
    if len(request.items) > MAX_ITEMS:
        raise _wrong(f"The input has at most {MAX_ITEMS} items.", "input")
    if request.infill is not None:
        raise _unsupported("A gap is filled by /v1/completions with a suffix.", "infill")
    for name in ("tools", "tool_choice"):
        check_depth(getattr(request, name), name)
    check_depth(request.text.format.schema if request.text else None, "text.format.schema")
    if request.conversation is not None:
        raise _unsupported("Conversations are not supported: use previous_response_id.", "conversation")
    if request.prompt is not None:
        raise _unsupported("Stored prompts are not supported: send the input itself.", "prompt")
    if request.metadata and len(request.metadata) > MAX_METADATA:
        raise _wrong(f"Metadata has at most {MAX_METADATA} pairs.", "metadata")
    if request.background and not request.is_stored:
        raise _wrong("A background response must be stored, or nobody could ever read it.", "store")
    if request.stream_id is not None:
        check_lane(request.stream_id)
    if request.candidates and request.is_generating:
        raise _wrong("Candidates are scored only with generate: false.", "candidates")
    if request.is_provisional and request.is_generating:
        raise _wrong("Only what is prefilled (generate: false) can be provisional.", "is_provisional")
    if request.text and request.text.format.type == "json_schema" and request.text.format.schema is None:
        raise Refusal(
            "A json_schema format needs its schema.",
            code="missing_required_parameter",
            param="text.format.schema",
        )
    for index, item in enumerate(request.items):
        check_item(item, f"input[{index}]")
    tools = request.all_tools()
    if not request.previous_response_id:  # or else tools may be in the log that it continues
        parse_choice(request.tool_choice, tools)
    is_empty = not request.items and not request.instructions and not request.previous_response_id
    if is_empty and (request.is_generating or request.candidates):
        raise Refusal("There is no input to answer.", code="missing_required_parameter", param="input")


def check_lane(stream_id: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", stream_id):
        raise Refusal(
            "A stream_id has 1 to 256 letters, digits, '_', '.' or '-'.",
            code="invalid_stream_id",
            param="stream_id",
        )


def _wrong(message: str, param: str) -> Refusal:
    return Refusal(message, code="invalid_value", param=param)


def _unsupported(message: str, param: str) -> Refusal:
    return Refusal(message, code="unsupported_parameter", param=param)
