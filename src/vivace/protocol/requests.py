"""What a client may ask for: the body of `POST /v1/responses`, and the messages on a WebSocket.

Fields of OpenAI's API that we do not use are passed over; a field we would have to obey and cannot is
refused by name. Our own additions:

- `stop`: a string or a list; the answer ends before the first of them, and no part of it is ever sent.
- `seed`: the same seed after the same input gives the same answer.
- `prediction`: text that the answer will resemble, as in OpenAI's chat completions. It never changes the
  answer, only how soon it is there.
- `top_k`, `min_p`, `repetition_penalty`, `presence_penalty`, `frequency_penalty`, `logit_bias` (by token id).
- `generate: false`: prefill only. With `candidates: [text, …]`, also the log-probability of each as what
  the assistant would say next, as `scores` of the completed response.
- A last input message of the assistant's with `status: "in_progress"` is continued, not closed.

Owns parsing and checking. Does not own what a request does.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from vivace.protocol.refusal import Refusal

MAX_BODY_BYTES = 16 * 1024 * 1024
TEXT_PARTS = ("input_text", "output_text", "text")

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
T = TypeVar("T")
StopText = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class Part(msgspec.Struct):
    type: str
    text: str | None = None


class InputItem(msgspec.Struct):
    """A message. Other kinds of items come with the full protocol."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] = ""
    status: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text or "" for part in self.content)


class Prediction(msgspec.Struct):
    type: Literal["content"] = "content"
    content: str | list[Part] = ""

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text or "" for part in self.content)


class ResponseCreate(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: str | list[InputItem] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    stream_id: str | None = None
    background: bool | None = None
    generate: bool = True
    max_output_tokens: Count | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = 0
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    logit_bias: dict[int, Annotated[float, msgspec.Meta(ge=-100, le=100)]] = {}
    prediction: Prediction | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    tools: list[Any] | None = None
    stop: StopText | Annotated[list[StopText], msgspec.Meta(max_length=16)] | None = None
    seed: Seed | None = None
    candidates: Annotated[list[str], msgspec.Meta(min_length=1, max_length=256)] | None = None

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [InputItem(role="user", content=self.input)] if self.input else []
        return self.input

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class ResponseCancel(msgspec.Struct):
    response_id: str


class _Envelope(msgspec.Struct):
    type: str = ""


def parse_create(data: bytes | str) -> ResponseCreate:
    """A checked request, or `Refusal` with the field that is wrong."""
    request = _decode(data, ResponseCreate)
    _check(request)
    return request


def parse_type(data: bytes | str) -> str:
    return _decode(data, _Envelope).type


def parse_cancel(data: bytes | str) -> ResponseCancel:
    return _decode(data, ResponseCancel)


def _decode(data: bytes | str, kind: type[T]) -> T:
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


def _check(request: ResponseCreate) -> None:
    if request.tools:
        raise _unsupported("Tools are not supported yet.", "tools")
    if request.background:
        raise _unsupported("Background responses are not supported yet.", "background")
    if request.stream_id is not None:
        _check_lane(request.stream_id)
    if request.candidates and request.generate:
        raise Refusal(
            "Candidates are scored only with generate: false.", code="invalid_value", param="candidates"
        )
    for index, item in enumerate(request.items):
        _check_item(item, f"input[{index}]")
    is_empty = not request.items and not request.instructions and not request.previous_response_id
    if is_empty and (request.generate or request.candidates):
        raise Refusal("There is no input to answer.", code="missing_required_parameter", param="input")


def _check_lane(stream_id: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", stream_id):
        raise Refusal(
            "A stream_id has 1 to 256 letters, digits, '_', '.' or '-'.",
            code="invalid_stream_id",
            param="stream_id",
        )
    raise _unsupported("Named lanes are not supported yet.", "stream_id")


def _check_item(item: InputItem, where: str) -> None:
    if item.type != "message":
        raise _unsupported(f"Input items of type {item.type!r} are not supported yet.", f"{where}.type")
    if item.role is None:
        raise Refusal("A message needs a role.", code="missing_required_parameter", param=f"{where}.role")
    for index, part in enumerate(item.content if isinstance(item.content, list) else []):
        param = f"{where}.content[{index}]"
        if part.type not in TEXT_PARTS:
            raise _unsupported(f"Content of type {part.type!r} is not supported.", f"{param}.type")
        if part.text is None:
            raise Refusal(
                "A text part needs its text.", code="missing_required_parameter", param=f"{param}.text"
            )


def _unsupported(message: str, param: str) -> Refusal:
    return Refusal(message, code="unsupported_parameter", param=param)
