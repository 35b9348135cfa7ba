"""What upstreams are sent: conversations, tools and settings, in both APIs."""

import json
from typing import Any

import pytest

from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.parsing import parse_create
from vivace.server.backends.upstream.dialects import chat_body, responses_body
from vivace.server.backends.upstream.dialects.items import NO_OUTPUT, conversation
from vivace.server.backends.upstream.dialects.tools import toolbox
from vivace.server.backends.upstream.request import UpstreamRequest
from vivace.server.backends.upstream.settings import read_upstreams

OPENAI = "https://api.openai.com/v1"


def question(url: str = "http://box/v1", omit: tuple[str, ...] = (), **fields: Any) -> UpstreamRequest:
    request = parse_create(json.dumps({"input": "hi"} | fields))
    (upstream,) = read_upstreams({"box": {"url": url, "omit": list(omit)}})
    return UpstreamRequest(
        upstream, "m", request, conversation(request.items), toolbox(request, request.items)
    )


def chat(**fields: Any) -> Any:
    return json.loads(chat_body.body(question(**fields)))


def responses(**fields: Any) -> Any:
    return json.loads(responses_body.body(question(**fields)))


def message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content} | fields


def call(number: int, arguments: str = "{}", name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": arguments} | fields


def output(number: int, text: Any = "") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": text or f"out {number}"}


FUNCTION = {"type": "function", "name": "f", "description": "does", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "patches"}


def shape(messages: list[dict[str, Any]]) -> list[str]:
    """Roles and what is called or answered, in a short form."""
    lines = []
    for one in messages:
        ids = [made["id"] for made in one.get("tool_calls", [])] or [one.get("tool_call_id", "")]
        lines.append(" ".join([one["role"], *filter(None, ids)]))
    return lines


def test_a_chat_is_messages() -> None:
    """Instructions and developer messages make one system message; items become the messages they are."""
    sent = chat(
        instructions="Be brief.",
        input=[message("developer", "Use tabs."), message("user", "hi"), message("assistant", "Hello.")],
    )
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief.\n\nUse tabs."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello."},
    ]
    assert (sent["model"], sent["stream"], sent["stream_options"]) == ("m", True, {"include_usage": True})


def test_user_messages_in_a_row_are_one() -> None:
    """Templates that want roles to alternate get what they want."""
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert chat(input=[message("user", parts), message("user", "c")])["messages"] == [
        {"role": "user", "content": "a\nb\n\nc"}
    ]


def test_calls_belong_to_the_message_before_them() -> None:
    """Text and calls of one answer are one assistant message, and outputs follow as role tool."""
    sent = chat(
        input=[
            message("user", "hi"),
            message("assistant", "Let me see."),
            call(1),
            call(2),
            output(1),
            output(2),
        ]
    )
    assert shape(sent["messages"]) == ["user", "assistant c1 c2", "tool c1", "tool c2"]
    assert sent["messages"][1]["content"] == "Let me see."
    assert sent["messages"][3]["content"] == "out 2"


def test_one_call_after_the_other_stays_so() -> None:
    """Calls that were not made at once are not made parallel."""
    sent = chat(input=[message("user", "hi"), call(1), output(1), call(2), output(2)])
    assert shape(sent["messages"]) == ["user", "assistant c1", "tool c1", "assistant c2", "tool c2"]
    assert sent["messages"][1]["content"] == ""


def test_histories_of_interrupted_turns_are_mended() -> None:
    """A call without an output gets one, outputs follow their calls at once, and nothing said is lost."""
    sent = chat(
        input=[message("user", "hi"), call(1), call(2), message("user", "stop"), output(2), output(9)]
    )
    assert shape(sent["messages"]) == ["user", "assistant c1 c2", "tool c1", "tool c2", "user"]
    assert sent["messages"][2]["content"] == NO_OUTPUT
    assert sent["messages"][3]["content"] == "out 2"
    assert sent["messages"][4]["content"] == "stop\n\nOutput of the call c9:\nout 9"
    items = responses(input=[message("user", "hi"), call(1), message("user", "stop")])["input"]
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]


def test_ids_that_are_used_twice_are_kept_apart() -> None:
    """Servers that count their calls anew in each turn make the same ids: each call has its own output."""
    items = [call(1), output(1, "first"), message("user", "again"), call(1), output(1, "second")]
    sent = chat(input=items)["messages"]
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["first", "second"]
    sent = chat(input=[output(1, "lost"), call(1), output(1, "own")])["messages"]
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["own"]


def test_reasoning_and_empty_messages_are_left_out() -> None:
    """Reasoning of another server is refused by some; an interrupted answer may have said nothing."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}
    items = [message("user", "hi"), thought, message("assistant", ""), message("user", "there")]
    assert shape(chat(input=items)["messages"]) == ["user"]
    assert [item["role"] for item in responses(input=items)["input"]] == ["user", "user"]


@pytest.mark.parametrize("arguments", ["{oops", "", "[1]", "just text", "[" * 20_000])
def test_malformed_arguments_of_old_calls_fail_no_later_turn(arguments: str) -> None:
    """Chat servers parse the history: what is no JSON object is wrapped into one."""
    made = chat(input=[call(1, arguments), output(1)])["messages"][0]["tool_calls"][0]["function"]
    assert isinstance(json.loads(made["arguments"]), dict)
    items = responses(input=[call(1, arguments), output(1)])["input"]
    assert items[0]["arguments"] == (arguments or "{}")


def test_responses_get_items_without_ids() -> None:
    """Ids are ours, and would be looked up there; parts stay parts, but an assistant's are one text."""
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    said = [{"type": "output_text", "text": "x", "annotations": []}]
    sent = responses(
        instructions="Be brief.",
        input=[
            message("user", parts, id="msg_1"),
            message("assistant", said, id="msg_2"),
            call(1, id="fc_1"),
            output(1),
        ],
    )
    assert sent["input"] == [
        {"type": "message", "role": "user", "content": parts},
        {"type": "message", "role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "out 1"},
    ]
    assert (sent["instructions"], sent["store"], sent["stream"]) == ("Be brief.", False, True)
    assert "previous_response_id" not in sent


def test_an_answer_to_be_continued_is_sent_so() -> None:
    """Our own addition, which another Vivace understands."""
    begun = message("assistant", "def f(", status="in_progress")
    sent = responses(input=[message("user", "hi"), begun])["input"][-1]
    assert (sent["status"], sent["content"][0]["text"]) == ("in_progress", "def f(")
    assert chat(input=[message("user", "hi"), begun])["messages"][-1] == {
        "role": "assistant",
        "content": "def f(",
    }


def test_custom_tools_are_functions_with_one_input() -> None:
    """Chat has none: the grammar is told in words, and calls of the history are wrapped the same way."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    items = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "a\nb"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
    ]
    sent = chat(input=items, tools=[PATCH | {"format": grammar}])
    function = sent["tools"][0]["function"]
    assert list(function["parameters"]["properties"]) == ["input"]
    assert "start: /x/" in function["description"]
    assert sent["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"input": "a\\nb"}'
    kept = responses(input=items, tools=[PATCH | {"format": grammar}])
    assert kept["tools"] == [PATCH | {"format": grammar}]
    assert [item["type"] for item in kept["input"]] == ["custom_tool_call", "custom_tool_call_output"]


def test_tools_of_namespaces_have_names_of_their_own() -> None:
    """Servers know no namespaces, and refuse a point in a name; calls find their way back."""
    spaces = [
        {"type": "namespace", "name": "one", "tools": [FUNCTION | {"name": "go.to"}, FUNCTION]},
        {"type": "namespace", "name": "two", "tools": [FUNCTION]},
    ]
    asked = question(tools=spaces, input=[call(1, name="f", namespace="two"), output(1)])
    names = [tool["name"] for tool in json.loads(responses_body.body(asked))["tools"]]
    assert names == ["go_to", "one__f", "two__f"]
    assert json.loads(responses_body.body(asked))["input"][0]["name"] == "two__f"
    begun = [asked.toolbox.begun(name, "c", is_custom=False) for name in names]
    assert [(one.name, one.namespace) for one in begun] == [("go.to", "one"), ("f", "one"), ("f", "two")]


def test_tools_in_items_are_tools() -> None:
    """Those that the lite shape gave in an earlier turn count, and no item of theirs is sent."""
    extra = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}
    sent = chat(input=[extra, message("user", "hi")])
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["f"]
    assert shape(sent["messages"]) == ["user"]


@pytest.mark.parametrize(
    ("choice", "in_chat", "in_responses"),
    [
        (None, "auto", "auto"),
        ("none", "none", "none"),
        ("required", "required", "required"),
        (
            {"type": "function", "name": "f"},
            {"type": "function", "function": {"name": "f"}},
            {"type": "function", "name": "f"},
        ),
        (
            {"type": "custom", "name": "apply_patch"},
            {"type": "function", "function": {"name": "apply_patch"}},
            {"type": "custom", "name": "apply_patch"},
        ),
    ],
)
def test_the_choice_of_tools_is_passed_on(choice: Any, in_chat: Any, in_responses: Any) -> None:
    """In the words of either API."""
    fields = {"tools": [FUNCTION, PATCH], "tool_choice": choice, "parallel_tool_calls": False}
    assert chat(**fields)["tool_choice"] == in_chat
    assert responses(**fields)["tool_choice"] == in_responses
    assert chat(**fields)["parallel_tool_calls"] is responses(**fields)["parallel_tool_calls"] is False


def test_allowed_tools_are_those_that_are_offered() -> None:
    """Not every server knows `allowed_tools`: what may not be called is not told of."""
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    sent = chat(tools=[FUNCTION, PATCH], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["f"]
    assert sent["tool_choice"] == "auto"


@pytest.mark.parametrize(
    ("parameters", "is_strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "object"}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}},
                "required": ["a"],
                "additionalProperties": False,
            },
            False,
        ),
    ],
)
def test_strict_is_said_only_where_it_can_be_obeyed(parameters: Any, *, is_strict: bool) -> None:
    """Chat refuses a strict tool whose schema leaves anything open; Responses is strict by itself."""
    tool = FUNCTION | {"parameters": parameters}
    assert chat(tools=[tool])["tools"][0]["function"].get("strict", False) is is_strict
    assert "strict" not in responses(tools=[tool])["tools"][0]
    assert responses(tools=[tool | {"strict": False}])["tools"][0]["strict"] is False


def test_formats_are_passed_on() -> None:
    """A JSON schema in the shape of either API."""
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    assert responses(text={"format": schema})["text"]["format"] == schema
    assert chat(text={"format": schema})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert chat(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in chat(text={"format": {"type": "text"}})


ALL = {
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1.0},
    "seed": 7,
    "stop": ["a", "b"],
    "prediction": {"type": "content", "content": "p"},
    "prompt_cache_key": "k",
    "service_tier": "flex",
    "reasoning": {"effort": "low", "context": "x"},
    "metadata": {"a": "b"},
    "include": ["reasoning.encrypted_content"],
    "truncation": "auto",
    "client_metadata": {"x": "y"},
}
NEVER = {"metadata", "client_metadata", "generate", "candidates", "include", "n"}
EXTRAS = {"top_k", "min_p", "repetition_penalty"}


def test_openai_gets_only_what_its_apis_have() -> None:
    """A field more, and it refuses the request."""
    in_chat, in_responses = chat(url=OPENAI, **ALL), responses(url=OPENAI, **ALL)
    assert not set(in_chat) & (NEVER | EXTRAS | {"max_tokens", "truncation", "prediction"})
    assert not set(in_responses) & (
        NEVER | EXTRAS | {"stop", "seed", "logit_bias", "presence_penalty", "prediction"}
    )
    assert (in_chat["max_completion_tokens"], in_chat["seed"], in_chat["stop"]) == (9, 7, ["a", "b"])
    assert in_chat["reasoning_effort"] == "low"
    assert in_chat["logit_bias"] == {"5": 1.0}
    assert (in_responses["max_output_tokens"], in_responses["reasoning"]) == (9, {"effort": "low"})
    assert in_responses["prompt_cache_key"] == in_chat["prompt_cache_key"] == "k"


def test_other_servers_get_what_they_may_know() -> None:
    """What many servers have beyond OpenAI's, but no hints that a strict one would refuse."""
    in_chat, in_responses = chat(**ALL), responses(**ALL)
    assert set(in_chat) >= EXTRAS | {"max_tokens", "seed", "stop"}
    assert not set(in_chat) & (NEVER | {"prompt_cache_key", "service_tier", "max_completion_tokens"})
    assert set(in_responses) >= EXTRAS | {"stop", "seed", "prediction"}
    assert not set(in_responses) & NEVER


def test_a_plain_request_has_no_field_that_nobody_asked_for() -> None:
    """Defaults are the upstream's own."""
    assert set(chat()) == {"model", "messages", "stream", "stream_options"}
    assert set(responses()) == {"model", "input", "stream", "store"}


def test_settings_can_omit_a_field() -> None:
    """For a server that refuses one."""
    assert set(chat(omit=("stream_options",))) == {"model", "messages", "stream"}


def test_predictions_go_where_openai_takes_them() -> None:
    """Not together with tools or a limit of tokens."""
    prediction = {"type": "content", "content": [{"type": "text", "text": "p"}]}
    assert chat(prediction=prediction)["prediction"] == {"type": "content", "content": "p"}
    assert "prediction" not in chat(prediction=prediction, tools=[FUNCTION])


def test_more_stops_than_chat_takes_are_not_sent() -> None:
    """They are looked for here."""
    assert "stop" not in chat(stop=list("abcde"))


def test_long_histories_are_sorted_in_no_time() -> None:
    """Twenty thousand calls, outputs far behind: linear."""
    calls = [
        InputItem(type="function_call", name="f", call_id=f"c{n}", arguments="{}") for n in range(20_000)
    ]
    outputs = [InputItem(type="function_call_output", call_id=f"c{n}", output="o") for n in range(20_000)]
    entries = conversation([*calls, InputItem(role="user", content="x"), *outputs])
    assert len(entries) == 40_001


def test_an_effort_that_nobody_asked_for_is_not_told() -> None:
    """Some servers refuse it, and an API may imply one."""
    implied = {"reasoning": {"effort": "none", "is_implied": True}}
    assert "reasoning_effort" not in chat(**implied)
    assert "reasoning" not in responses(**implied)
