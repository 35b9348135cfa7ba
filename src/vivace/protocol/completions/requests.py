"""What an editor may ask for: text that goes on, or text between a prefix and a suffix.

Owns the shapes of both requests and their translation into a `ResponseCreate` with `infill`. A prompt into
which an editor has written the marks of Qwen's or StarCoder's infilling is read as one with a suffix; in any
other text such marks stay text. Does not own the answer (`writer`) or tokens.
"""

import re
from typing import Any

import msgspec

from vivace.protocol.shapes.items import missing
from vivace.protocol.shapes.parsing import check_sizes, decode, parse_create
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import Infill, ResponseCreate, StopText

DEFAULT_TOKENS = 16  # as OpenAI has it
INFILL_TOKENS = 256  # where `/infill` names no number
MAX_SEED = (1 << 63) - 1
SAME = (
    "model",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "stop",
    "service_tier",
)
_MARKED = [
    re.compile(r"<\|fim_prefix\|>(.*?)<\|fim_suffix\|>(.*?)<\|fim_middle\|>", re.DOTALL),
    re.compile(r"<fim_prefix>(.*?)<fim_suffix>(.*?)<fim_middle>", re.DOTALL),
]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class CompletionCreate(msgspec.Struct, kw_only=True):
    """The body of `/v1/completions`. Fields of any type here are checked as fields of `ResponseCreate`."""

    prompt: Any = None
    suffix: str | None = None
    model: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n_predict: int | None = None  # llama.cpp's name for it
    n: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | None = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    min_p: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logit_bias: Any = None
    stop: Any = None
    seed: int | None = None
    service_tier: Any = None


class InfillCreate(msgspec.Struct, kw_only=True):
    """The body of `/infill`. `prompt` is what stands on the cursor's line, behind `input_prefix`."""

    input_prefix: str | None = None
    input_suffix: str = ""
    prompt: str = ""
    model: Any = None
    n_predict: int | None = None
    stream: bool | None = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    min_p: Any = None
    stop: list[StopText] | None = None
    seed: int | None = None
    t_max_predict_ms: float | None = None  # after this time the text ends with its line
    response_fields: list[str] | None = None  # those that are wanted: "content", "timings/prompt_n"


class _Sized(msgspec.Struct):
    """The fields that may hold anything, kept as raw JSON."""

    logit_bias: msgspec.Raw = msgspec.Raw()
    stop: msgspec.Raw = msgspec.Raw()


class CompletionRequest(msgspec.Struct):
    create: ResponseCreate
    has_usage_chunk: bool = False
    last_line_s: float | None = None  # a line that ends later is the last one
    fields: tuple[str, ...] = ()  # of the answer; none: all


def parse_completion(data: bytes | str) -> CompletionRequest:
    """Return a checked request; raise a `Refusal` that names the field that is wrong."""
    check_sizes(data, _Sized)
    asked = decode(data, CompletionCreate)
    _refuse_what_we_cannot(asked)
    wanted = asked.max_tokens if asked.max_tokens is not None else asked.n_predict
    create = _create(asked, DEFAULT_TOKENS if wanted is None else wanted, "max_tokens")
    create.infill = _with_marks(Infill(_prompt_text(asked.prompt), asked.suffix))
    return CompletionRequest(create, bool(asked.stream_options and asked.stream_options.include_usage))


def parse_infill(data: bytes | str) -> CompletionRequest:
    """Return a checked request of `/infill`. Fields for samplers that we do not have are passed over."""
    check_sizes(data, _Sized)
    asked = decode(data, InfillCreate)
    if asked.input_prefix is None:
        raise missing("There is no text to complete.", "input_prefix")
    if asked.stream:
        raise _unsupported("/infill answers at once.", "stream", "Use /v1/completions for a stream.")
    wanted = INFILL_TOKENS if asked.n_predict is None or asked.n_predict < 0 else asked.n_predict
    create = _create(asked, wanted, "n_predict")
    create.infill = Infill(asked.input_prefix + asked.prompt, asked.input_suffix)
    limit_ms = asked.t_max_predict_ms or 0.0
    last_line_s = limit_ms / 1e3 if limit_ms > 0 else None
    return CompletionRequest(create, last_line_s=last_line_s, fields=tuple(asked.response_fields or ()))


def _create(asked: CompletionCreate | InfillCreate, max_tokens: int, name: str) -> ResponseCreate:
    """Return the request without its text. No tokens at all: the text is only read, for the next one."""
    if max_tokens < 0:
        raise Refusal(f"{name} is 0 or more.", code="invalid_value", param=name)
    settings = {name: getattr(asked, name, None) for name in SAME}
    settings |= {
        "input": "-",
        "store": False,
        "max_output_tokens": max_tokens or None,
        "generate": max_tokens > 0,
        "seed": None if asked.seed is None else asked.seed & MAX_SEED,
    }
    if settings["top_k"] == -1:
        settings["top_k"] = 0
    body = {name: value for name, value in settings.items() if value is not None and value != []}
    create = parse_create(msgspec.json.encode(body))
    create.input = ""
    return create


def _refuse_what_we_cannot(asked: CompletionCreate) -> None:
    for name in ("n", "best_of"):
        if getattr(asked, name) not in (None, 1):
            raise _unsupported(f"One choice is given for a request: {name} is 1.", name)
    if asked.echo:
        raise _unsupported("The prompt is not sent back.", "echo")
    if asked.logprobs is not None:
        raise _unsupported("Completions have no logprobs.", "logprobs", "Use /v1/chat/completions.")


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if prompt is None:
        raise missing("There is no prompt to complete.", "prompt")
    raise _unsupported("A prompt is one text; token numbers are not read.", "prompt")


def _with_marks(infill: Infill) -> Infill:
    """Read the marks of infilling in a prompt that has all three of them and nothing around."""
    if infill.suffix is None:
        for marked in _MARKED:
            if found := marked.fullmatch(infill.prefix):
                return Infill(found[1], found[2])
    return infill


def _unsupported(message: str, param: str, hint: str = "") -> Refusal:
    return Refusal(message, hint, code="unsupported_parameter", param=param)
