"""Calls as each format writes them, in our words: what templates print, for the tests of `CallFormat`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

Calls = Sequence[tuple[str, dict[str, Any]]]


def shown(value: Any) -> str:
    """A value between tags: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumped(value)


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def each(write: Callable[[int, str, dict[str, Any]], str], glue: str = "") -> Callable[[Calls], str]:
    return lambda calls: glue.join(write(place, name, found) for place, (name, found) in enumerate(calls))


def objects(
    before: str, behind: str, glue: str, shape: str = '{"name": NAME, "arguments": ARGS}'
) -> Callable[[Calls], str]:
    """JSON objects between a first and a last text."""
    filled = each(
        lambda place, name, found: (
            shape.replace("PLACE", str(place)).replace("NAME", dumped(name)).replace("ARGS", dumped(found))
        ),
        glue,
    )
    return lambda calls: f"{before}{filled(calls)}{behind}"


def tags(
    head: str, key: str, end_value: str, end: str, *, before: str = "", behind: str = "", glue: str = ""
) -> Callable[[Calls], str]:
    def one(place: int, name: str, found: dict[str, Any]) -> str:
        values = (
            key.replace("KEY", each_key)
            .replace("STRING", str(isinstance(value, str)).lower())
            .replace("TYPE", kind(value))
            + shown(value)
            + end_value
            for each_key, value in found.items()
        )
        return head.replace("NAME", name).replace("PLACE", str(place)) + "".join(values) + end

    filled = each(one, glue)
    return lambda calls: f"{before}{filled(calls)}{behind}"


def kind(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")


def gemma(value: Any) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            return "{" + ",".join(f"{key}:{gemma(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(map(gemma, value)) + "]"
        case _:
            return dumped(value)


def python(value: Any) -> str:
    return (
        f"'{value}'" if isinstance(value, str) else dumped(value) if isinstance(value, dict) else str(value)
    )


def keywords(found: dict[str, Any]) -> str:
    return ", ".join(f"{key}={python(value)}" for key, value in found.items())


DSML = "｜DSML｜"
_PARAMETER = f'<{DSML}parameter name="KEY" string="STRING">'
_LIST = ("[", "]", ", ")


def dsml(block: str) -> Callable[[Calls], str]:
    return tags(
        f'<{DSML}invoke name="NAME">\n', _PARAMETER, f"</{DSML}parameter>\n", f"</{DSML}invoke>\n",
        before=f"<{DSML}{block}>\n", behind=f"</{DSML}{block}>",
    )  # fmt: skip


def invokes(prefix: str, block: str) -> Callable[[Calls], str]:
    return tags(
        f'<{prefix}invoke name="NAME">\n', f'<{prefix}parameter name="KEY">', f"</{prefix}parameter>\n",
        f"</{prefix}invoke>\n", before=f"<{block}>\n", behind=f"</{block}>",
    )  # fmt: skip


def nested(value: Any) -> str:
    match value:
        case dict():
            return "".join(f"{M3}<{key}>{nested(inner)}{M3}</{key}>" for key, inner in value.items())
        case list():
            return "".join(f"{M3}<item>{nested(inner)}{M3}</item>" for inner in value)
        case _:
            return shown(value)


M3 = "]<]minimax[>["
S = ":opensource"
WRITTEN: dict[str, Callable[[Calls], str]] = {
    "llama": objects("", "", "; ", '{"name": NAME, "parameters": ARGS}'),
    "hermes": objects("<tool_call>\n", "\n</tool_call>", "\n</tool_call>\n<tool_call>\n"),
    "qwen-coder": tags(
        "<tool_call>\n<function=NAME>\n", "<parameter=KEY>\n", "\n</parameter>\n",
        "</function>\n</tool_call>", glue="\n",
    ),
    "mistral": each(lambda _, name, found: f"[TOOL_CALLS]{name}[ARGS]{dumped(found)}"),
    "mistral-ids": each(
        lambda place, name, found: f"[TOOL_CALLS]{name}[CALL_ID]call0000{place}[ARGS]{dumped(found)}"
    ),
    "minimax-m1": objects("<tool_calls>\n", "\n</tool_calls>", "\n"),
    "gigachat-3.1": objects("<|function_call|>", "", "<|function_call|>"),
    "gigachat-3": objects(
        "<|message_sep|>\n\nfunction call<|role_sep|>\n", "", "<|message_sep|>\n\nfunction call<|role_sep|>\n"
    ),
    "nemotron-2": objects("<TOOLCALL>[", "]</TOOLCALL>", ", "),
    "tool-calls": objects("<tool_calls>[", "]</tool_calls>", ", "),
    "tool-call-list": objects("<|tool_call|>[", "]<|/tool_call|>", ", "),
    "mistral-list": objects(
        "[TOOL_CALLS][", "]", ", ", '{"name": NAME, "arguments": ARGS, "id": "call0000PLACE"}'
    ),
    "firefunction": objects("functools[", "]", ", "),
    "apertus": objects("<|tools_prefix|>[", "]<|tools_suffix|>", ", ", "{NAME: ARGS}"),
    "command": objects(
        "<|START_ACTION|>[\n", "\n]<|END_ACTION|>", ",\n",
        '    {"tool_call_id": "PLACE", "tool_name": NAME, "parameters": ARGS}',
    ),
    "command-plus": objects(
        "Action:\n```json\n[\n", "\n]```", ",\n",
        '    {\n        "tool_name": NAME,\n        "parameters": ARGS\n    }',
    ),
    "deepseek-v3.1": lambda calls: (
        "<｜tool▁calls▁begin｜>"
        + "".join(
            f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumped(found)}<｜tool▁call▁end｜>"
            for name, found in calls
        )
        + "<｜tool▁calls▁end｜>"
    ),
    "deepseek-r1": lambda calls: (
        "<｜tool▁calls▁begin｜>"
        + "\n".join(
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumped(found)}\n```"
            "<｜tool▁call▁end｜>"
            for name, found in calls
        )
        + "<｜tool▁calls▁end｜>"
    ),
    "kimi-k2": lambda calls: (
        "<|tool_calls_section_begin|>"
        + "".join(
            f"<|tool_call_begin|>functions.{name}:{place}<|tool_call_argument_begin|>{dumped(found)}"
            "<|tool_call_end|>"
            for place, (name, found) in enumerate(calls)
        )
        + "<|tool_calls_section_end|>"
    ),
    "solar": lambda calls: (
        "<|tool_calls|>"
        + "".join(
            f"<|tool_call:begin|>call0000{place}<|tool_call:name|>{name}<|tool_call:args|>{dumped(found)}"
            "<|tool_call:end|>"
            for place, (name, found) in enumerate(calls)
        )
        + "<|calls|>"
    ),
    "functionary-3.1": each(lambda _, name, found: f"<function={name}>{dumped(found)}</function>"),
    "functionary-3.2": each(lambda _, name, found: f">>>{name}\n{dumped(found)}"),
    "seed": tags(
        "<seed:tool_call>\n<function=NAME>\n", "<parameter=KEY>", "</parameter>\n",
        "</function>\n</seed:tool_call>", glue="\n",
    ),
    "minicpm": tags('<function name="NAME">', '<param name="KEY">', "</param>", "</function>", glue="\n"),
    "kimi-k3": tags(
        '<|open|>call tool="NAME" index="PLACE"<|sep|>', '<|open|>argument key="KEY" type="TYPE"<|sep|>',
        "<|close|>argument<|sep|>", "<|close|>call<|sep|>",
        before="<|open|>tools<|sep|>", behind="<|close|>tools<|sep|>",
    ),
    "minimax-m2": invokes("", "minimax:tool_call"),
    "muse": invokes("atem:", "atem:function_calls"),
    "deepseek-v3.2": dsml("function_calls"),
    "deepseek-v4": dsml("tool_calls"),
    "glm": tags(
        "<tool_call>NAME\n", "<arg_key>KEY</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>",
        glue="\n",
    ),
    "hunyuan": tags(
        f"<tool_call{S}>NAME<tool_sep{S}>\n", f"<arg_key{S}>KEY</arg_key{S}>\n<arg_value{S}>",
        f"</arg_value{S}>\n", f"</tool_call{S}>\n",
        before=f"<tool_calls{S}>\n", behind=f"</tool_calls{S}>",
    ),
    "lfm": lambda calls: (
        "<|tool_call_start|>["
        + ", ".join(f"{name}({keywords(found)})" for name, found in calls)
        + "]<|tool_call_end|>"
    ),
    "minimax-m3": lambda calls: (
        f"{M3}<tool_call>\n"
        + "".join(f'{M3}<invoke name="{name}">{nested(found)}{M3}</invoke>\n' for name, found in calls)
        + f"{M3}</tool_call>"
    ),
    "gemma": each(lambda _, name, found: f"<|tool_call>call:{name}{gemma(found)}<tool_call|>"),
}  # fmt: skip
