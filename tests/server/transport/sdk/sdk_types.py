"""The types of OpenAI's SDK as a strict check of what the server sends.

The SDK itself takes whatever comes: it builds its objects without looking. Here every field that a type needs
must be there with the right type, and every field that no type knows must be one that we send on purpose.
"""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pydantic
from openai.types.responses import (
    Response,
    ResponseItem,
    ResponseItemList,
    ResponseOutputMessage,
    ResponsesServerEvent,
    ResponseStreamEvent,
)

Json = dict[str, Any]

# Sent on purpose, and unknown to the SDK. OpenAI's server sends `store`, and the `bytes` of a delta, too.
OURS = {
    "response.store",
    "response.vivace",
    "response.scores",
    "response.usage.output_tokens_details.accepted_prediction_tokens",
    "response.usage.output_tokens_details.rejected_prediction_tokens",
    "logprobs[].bytes",
    "logprobs[].top_logprobs[].bytes",
    "name",  # of the function, when its arguments are done: earlier SDKs need it
    "item.status",  # of a custom tool's call, which has one where items are listed
    "response.output[].status",
}


def problems_of_event(event: Json, *, is_on_socket: bool) -> list[str]:
    """What is wrong with an event, in words; nothing if it is as the SDK has it."""
    kind = _EVENTS[is_on_socket].get(event["type"])
    return problems(event, kind) if kind else [f"{event['type']}: the SDK knows no such event"]


def problems_of_response(response: Json) -> list[str]:
    return problems(response, Response, "response")


def problems_of_items(page: Json) -> list[str]:
    """Of a page of input items. Each is looked at by itself: a union would name every type that it is not."""
    found = problems(page | {"data": []}, ResponseItemList)
    for item in page["data"]:
        is_answer = item["type"] == "message" and item.get("role") == "assistant"
        found += problems(item, ResponseOutputMessage if is_answer else _ITEMS[item["type"]], "item")
    return found


def problems(data: Json, kind: type[pydantic.BaseModel], path: str = "") -> list[str]:
    name = data.get("type") or kind.__name__
    try:
        value = kind.model_validate_json(json.dumps(data), strict=True)
    except pydantic.ValidationError as error:
        return [f"{name}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    unknown = {each.removeprefix(".") for each in _extras(value, path)}
    return [f"{name}: {each}: the SDK knows no such field" for each in sorted(unknown - OURS)]


def _extras(value: Any, path: str) -> Iterator[str]:
    """Paths of the fields that no type knows."""
    if isinstance(value, pydantic.BaseModel):
        yield from (f"{path}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _extras(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _extras(each, f"{path}[]")


def _by_type(union: Any) -> dict[str, type[pydantic.BaseModel]]:
    kinds = reversed(get_args(get_args(union)[0]))  # of two with the same type, the first counts
    return {_type_of(kind): kind for kind in kinds}


def _type_of(kind: type[pydantic.BaseModel]) -> str:
    annotation = kind.model_fields["type"].annotation
    inner = next((each for each in get_args(annotation) if get_args(each)), annotation)  # of an Optional
    return str(get_args(inner)[0])


_ITEMS = _by_type(ResponseItem)
_EVENTS = {True: _by_type(ResponsesServerEvent), False: _by_type(ResponseStreamEvent)}
