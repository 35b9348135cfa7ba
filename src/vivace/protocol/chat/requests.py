"""Chat completions, for clients that do not speak the Responses API: what they may ask for.

A request becomes the `ResponseCreate` that asks for the same, so that there is one way through the server;
bounds and rules are checked there, once. Fields that we do not use are passed over; a field we would have to
obey and cannot is refused by name. Beyond OpenAI's fields: `top_k` (-1 is none, too), `min_p`,
`repetition_penalty`, `n_predict`, and an assistant's `reasoning_content` (or `reasoning`) in the history.

Owns the request's shapes and its translation, and back again of the names in a refusal. Does not own the
answer (`writer`).
"""

from typing import Annotated, Any, Literal

import msgspec

from vivace.protocol.chat.messages import Called, Message, items_of, unsupported
from vivace.protocol.shapes.items import InputItem, missing
from vivace.protocol.shapes.parsing import MAX_ITEMS, check_sizes, decode, parse_create
from vivace.protocol.shapes.refusal import Refusal, in_words
from vivace.protocol.shapes.requests import Count, ResponseCreate
from vivace.protocol.shapes.tools import Name

# The same name and meaning on both sides.
SAME = (
    "model",
    "stream",
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "prediction",
    "metadata",
    "parallel_tool_calls",
    "service_tier",
    "prompt_cache_key",
    "stop",
)
# How a chat client calls what a refusal is about.
NAMES = {
    "input": "messages",
    "max_output_tokens": "max_completion_tokens",
    "text.format.schema": "response_format.json_schema.schema",
    "text": "response_format",
    "reasoning": "reasoning_effort",
}
MAX_SEED = (1 << 63) - 1


class Function(msgspec.Struct):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Grammar(msgspec.Struct):
    syntax: Literal["lark", "regex"]
    definition: str


class CustomFormat(msgspec.Struct):
    type: Literal["text", "grammar"] = "text"
    grammar: Grammar | None = None


class Custom(msgspec.Struct):
    name: Name
    description: str | None = None
    format: CustomFormat | None = None


class ChatTool(msgspec.Struct):
    type: str
    function: Function | None = None
    custom: Custom | None = None


class Reference(msgspec.Struct):
    """A tool, by its name."""

    type: str = "function"
    function: Called | None = None
    custom: Called | None = None


class AllowedTools(msgspec.Struct):
    mode: Literal["auto", "required"] = "auto"
    tools: list[Reference] = []


class ToolChoice(Reference):
    allowed_tools: AllowedTools | None = None


class JsonSchema(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatCreate(msgspec.Struct, kw_only=True):
    """The body. Fields of any type here are checked as fields of `ResponseCreate`."""

    messages: list[Message] | None = None
    model: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=-1, le=1 << 30)] | None = (
        None  # -1: no limit, as llama.cpp has it
    )
    max_completion_tokens: Count | None = None
    n_predict: int | None = None  # llama.cpp's name; 0: read the messages and write nothing
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    min_p: Any = None
    repetition_penalty: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logit_bias: dict[int, float] | None = None
    logprobs: bool | None = None
    top_logprobs: Any = None
    stop: Any = None
    seed: int | None = None
    prediction: Any = None
    tools: list[ChatTool] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: Any = None
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    store: bool | None = None
    metadata: Any = None
    service_tier: Any = None
    prompt_cache_key: Any = None
    modalities: list[str] | None = None
    functions: Any = None
    function_call: Any = None
    web_search_options: Any = None


class _Sized(msgspec.Struct):
    """The fields that may hold anything, kept as raw JSON."""

    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    response_format: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()
    logit_bias: msgspec.Raw = msgspec.Raw()
    stop: msgspec.Raw = msgspec.Raw()
    modalities: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    web_search_options: msgspec.Raw = msgspec.Raw()


class ChatRequest(msgspec.Struct, frozen=True):
    create: ResponseCreate
    has_usage_chunk: bool = False


def parse_chat(data: bytes | str) -> ChatRequest:
    """Return a checked request; raise a `Refusal` that names the field that is wrong."""
    check_sizes(data, _Sized)
    chat = decode(data, ChatCreate)
    _refuse_what_we_cannot(chat)
    items = _items(chat.messages)
    try:
        create = parse_create(msgspec.json.encode(_settings(chat)))
    except Refusal as refusal:
        raise in_chat_words(refusal) from refusal.__cause__
    create.input = items
    return ChatRequest(create, bool(chat.stream_options and chat.stream_options.include_usage))


def _items(messages: list[Message] | None) -> list[InputItem]:
    if not messages:
        raise missing("There are no messages to answer.", "messages")
    if len(messages) > MAX_ITEMS or len(items := list(items_of(messages))) > MAX_ITEMS:
        message = f"There are at most {MAX_ITEMS} messages and calls."
        raise Refusal(message, code="invalid_value", param="messages")
    return items


def in_chat_words(refusal: Refusal) -> Refusal:
    """Return the same refusal about the field of the chat request."""
    return in_words(refusal, NAMES)


def _refuse_what_we_cannot(chat: ChatCreate) -> None:
    if chat.n not in (None, 1):
        raise unsupported("One choice is given for a request: n is 1.", "n")
    for name in ("functions", "function_call"):
        if getattr(chat, name) is not None:
            raise unsupported(f"{name} is no longer supported.", name, "Use tools and tool_choice.")
    if chat.modalities and chat.modalities != ["text"]:
        raise unsupported("This server answers with text only.", "modalities")
    if chat.web_search_options is not None:
        raise unsupported("This server does not search the web.", "web_search_options")
    if chat.max_tokens == 0:
        raise Refusal("max_tokens is 1 or more.", code="invalid_value", param="max_tokens")
    if chat.top_logprobs is not None and not chat.logprobs:
        raise Refusal("top_logprobs needs logprobs: true.", code="invalid_value", param="top_logprobs")


# ---- everything but the messages -------------------------------------------------------------------


def _settings(chat: ChatCreate) -> dict[str, Any]:
    """Return the settings as the body of a Responses request."""
    settings = {name: getattr(chat, name) for name in SAME}
    settings |= {
        "input": "-",  # the messages take its place
        "store": chat.store is True,  # there it is the default, here it must be asked for
        "max_output_tokens": _max_tokens(chat),
        "generate": False if chat.n_predict == 0 else None,
        "top_k": 0 if chat.top_k == -1 else chat.top_k,
        "top_logprobs": (chat.top_logprobs or 0) if chat.logprobs else None,
        "seed": None if chat.seed is None else chat.seed & MAX_SEED,  # negative ones are allowed here
        "tools": [_tool(tool, f"tools[{index}]") for index, tool in enumerate(chat.tools or ())],
        "tool_choice": _choice(chat.tool_choice),
        "text": _text(chat),
        "reasoning": _reasoning(chat.reasoning_effort),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _max_tokens(chat: ChatCreate) -> int | None:
    """Return how many tokens an answer may have; None for no limit."""
    counts = (chat.max_completion_tokens, chat.max_tokens, chat.n_predict)
    given = next((count for count in counts if count is not None), None)
    return given if given is not None and given > 0 else None


def _tool(tool: ChatTool, where: str) -> dict[str, Any]:
    if tool.type == "function":
        if tool.function is None:
            raise missing("A function tool needs its function.", f"{where}.function")
        function: dict[str, Any] = msgspec.to_builtins(tool.function)
        is_strict = tool.function.strict is True  # there it is the default, here it must be asked for
        return function | {"type": "function", "strict": is_strict}
    if tool.type == "custom":
        if tool.custom is None:
            raise missing("A custom tool needs its name and format.", f"{where}.custom")
        format = tool.custom.format or CustomFormat()
        if format.type == "grammar" and format.grammar is None:
            raise missing("A grammar format needs its grammar.", f"{where}.custom.format.grammar")
        grammar = msgspec.to_builtins(format.grammar) or {}
        return {
            "type": "custom",
            "name": tool.custom.name,
            "description": tool.custom.description,
            "format": {"type": format.type} | grammar,
        }
    return {"type": tool.type}  # will be refused by its type


def _choice(given: str | ToolChoice | None) -> Any:
    if given is None or isinstance(given, str):
        return given
    if given.type != "allowed_tools":
        return _named(given, "tool_choice")
    if given.allowed_tools is None:
        raise missing("tool_choice needs the allowed tools.", "tool_choice.allowed_tools")
    where = "tool_choice.allowed_tools.tools"
    tools = [_named(tool, f"{where}[{index}]") for index, tool in enumerate(given.allowed_tools.tools)]
    return {"type": "allowed_tools", "mode": given.allowed_tools.mode, "tools": tools}


def _named(tool: Reference, where: str) -> dict[str, Any]:
    if tool.type not in ("function", "custom"):
        raise unsupported(f"Tools of type {tool.type!r} are not supported.", f"{where}.type")
    called = tool.custom if tool.type == "custom" else tool.function
    if called is None or not called.name:
        raise missing("The tool's name is missing.", f"{where}.{tool.type}.name")
    return {"type": tool.type, "name": called.name}


def _text(chat: ChatCreate) -> dict[str, Any]:
    given = chat.response_format or ResponseFormat()
    schema = given.json_schema if given.type == "json_schema" else None
    format = msgspec.to_builtins(schema) if schema else {}
    text = {"format": format | {"type": given.type}}
    return text | ({"verbosity": chat.verbosity} if chat.verbosity else {})


def _reasoning(effort: str | None) -> dict[str, Any] | None:
    return None if effort is None else {"effort": "xhigh" if effort == "max" else effort}
