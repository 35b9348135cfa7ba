"""Grammars of wishes: what llguidance lets through under each, for every family."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer

from tests.models.families import tokenizers
from tests.models.families.reading import brief, read, read_tokens
from tests.thorough import examples
from vivace.engine.output.grammar_check import compile_grammar
from vivace.engine.wire.frames import Grammar as Frame
from vivace.models.families.base import Family, OutputSpec, Tool
from vivace.models.families.calls.lark_grammar import pattern
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import Qwen25

BYTES = LLTokenizer("byte")
CHATML = tokenizers.chatml()
QWEN, CODER, LLAMA = Qwen25(CHATML), Qwen3Coder(CHATML), Llama3(tokenizers.llama())
QWEN3, HARMONY = Qwen3(CHATML), Harmony(tokenizers.harmony())

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "n": {"type": "integer"},
    },
    "required": ["city", "n"],
    "additionalProperties": False,
}
STRICT = Tool("get", parameters=SCHEMA, is_strict=True)
LOOSE = Tool("get_more", parameters=SCHEMA)
NOW = Tool("now")
REGEX = Tool("pick", is_custom=True, syntax="regex", definition="[a-z]+/[0-9]{2}")
LARK = Tool(
    "patch",
    is_custom=True,
    syntax="lark",
    definition='start: "*** Begin" LF line+ "*** End"\nline: "+" /[^\\n]*/ LF\n%import common.LF',
)
FREE = Tool("write", is_custom=True)
ALL = (STRICT, LOOSE, NOW, REGEX, LARK, FREE)
GOOD, BAD = '{"city": "Oslo", "n": 1}', '{"city": "Oslo"}'


def allows(family: Family, spec: OutputSpec, text: str) -> bool:
    """Whether an answer may be this text, behind what `answer` has written."""
    grammar = family.grammar(spec)
    assert grammar is not None
    matcher = compile_grammar(BYTES, Frame(grammar.kind, grammar.text))
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def qwen_call(arguments: str, name: str = "get") -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}'


def llama_call(arguments: str, name: str = "get") -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def test_free_wishes_need_no_grammar() -> None:
    """Text, calls of tools that are not strict, and tools that may not be called."""
    for family in (QWEN, QWEN3, CODER, LLAMA, HARMONY):
        for spec in (
            OutputSpec(),
            OutputSpec(tools=(LOOSE, NOW, FREE)),
            OutputSpec(tools=(STRICT,), choice="none"),
        ):
            assert family.grammar(spec) is None


def test_a_schema_is_the_grammar_of_an_answer() -> None:
    """Without tools and reasoning nothing else can come."""
    spec = OutputSpec(schema=json.dumps(SCHEMA), effort="none")
    for family in (QWEN, QWEN3, CODER, LLAMA):
        grammar = family.grammar(spec)
        assert grammar is not None
        assert (grammar.kind, grammar.text) == ("json_schema", spec.schema)
    for family in (QWEN, QWEN3, CODER, LLAMA, HARMONY):  # type: ignore[assignment]
        assert allows(family, spec, GOOD)
        assert not allows(family, spec, BAD)


def test_reasoning_goes_before_an_answer_under_a_schema() -> None:
    """It is free until its end; then only the schema counts."""
    spec = OutputSpec(schema=json.dumps(SCHEMA))
    assert allows(QWEN3, spec, "Hm {\n</think>\n\n" + GOOD)
    assert not allows(QWEN3, spec, "Hm\n</think>\n\n" + BAD)
    assert not allows(QWEN3, spec, GOOD)
    thinking = "analysis<|message|>Hm {<|end|><|start|>assistant<|channel|>"
    assert allows(HARMONY, spec, thinking + "final<|message|>" + GOOD)
    assert allows(HARMONY, spec, "final<|message|>" + GOOD)
    assert not allows(HARMONY, spec, thinking + "final<|message|>" + BAD)


def test_a_schema_and_tools_allow_either() -> None:
    """The answer, or a call instead of it."""
    spec = OutputSpec(schema='{"type": "integer"}', tools=(STRICT,), effort="none")
    for family, call in ((QWEN, "<tool_call>\n" + qwen_call(GOOD)), (LLAMA, llama_call(GOOD))):
        assert allows(family, spec, "7")
        assert allows(family, spec, call)
        assert not allows(family, spec, "seven")
        assert not allows(family, spec, call.replace("Oslo", 'Oslo", "x": "'))
    assert allows(HARMONY, spec, "final<|message|>7")
    assert allows(HARMONY, spec, "commentary to=functions.get <|constrain|>json<|message|>" + GOOD)
    assert allows(QWEN3, OutputSpec(schema="[]", tools=(STRICT,)), "x") is False


# ---- calls that must come ---------------------------------------------------------------------------

REQUIRED = OutputSpec(tools=ALL, choice="required")
SINGLE = OutputSpec(tools=(STRICT,), choice="required", is_parallel=False)
NEXT = "\n</tool_call>\n<tool_call>\n"


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        (qwen_call(GOOD), True),
        (qwen_call(GOOD) + "\n</tool_call>", True),
        (qwen_call(GOOD) + "\n", True),
        (qwen_call(BAD), False),
        (qwen_call('{"city":"Oslo","unit":"c","n":1}', "get_more"), True),
        (qwen_call(BAD, "get_more"), False),
        (qwen_call("{}", "now"), True),
        (qwen_call('{"x": 1}', "now"), False),
        (qwen_call("{}", "other"), False),
        (qwen_call('{"input": "ab/12"}', "pick"), True),
        (qwen_call('{"input": "ab"}', "pick"), False),
        (qwen_call('{"input": "any\\nthing"}', "patch"), True),
        (qwen_call('{"input": 5}', "write"), False),
        (qwen_call(GOOD) + NEXT + qwen_call("{}", "now") + "\n</tool_call>", True),
        (qwen_call(GOOD) + NEXT + qwen_call(BAD), False),
        ("I cannot.", False),
        (qwen_call(GOOD) + " Done.", False),
    ],
)
def test_a_call_must_come_from_qwen(text: str, is_allowed: bool) -> None:
    """One call or several, each under its tool's schema, and nothing else."""
    assert allows(QWEN, REQUIRED, text) == is_allowed


def test_one_call_is_one() -> None:
    """Without parallel calls a second one cannot come."""
    assert allows(QWEN, SINGLE, qwen_call(GOOD) + "\n</tool_call>")
    assert not allows(QWEN, SINGLE, qwen_call(GOOD) + NEXT + qwen_call(GOOD))
    assert not allows(LLAMA, SINGLE, f"{llama_call(GOOD)}; {llama_call(GOOD)}")
    one = tagged(("city", "Oslo"), ("n", "1"))
    assert allows(CODER, SINGLE, one)
    assert not allows(CODER, SINGLE, one + NEXT + one)


def test_a_call_must_come_from_llama() -> None:
    """The object alone, or several."""
    assert allows(LLAMA, REQUIRED, llama_call(GOOD))
    assert allows(LLAMA, REQUIRED, f"{llama_call(GOOD)}; {llama_call('{}', 'now')}")
    assert not allows(LLAMA, REQUIRED, llama_call(BAD))


def tagged(*parameters: tuple[str, str], name: str = "get") -> str:
    lines = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<function={name}>\n{lines}</function>"


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        (tagged(("city", "a\nb"), ("n", "1")), True),
        (tagged(("city", "Oslo"), ("unit", "c"), ("n", "1")) + "\n</tool_call>", True),
        (tagged(("city", "Oslo"), ("unit", "k"), ("n", "1")), False),
        (tagged(("city", "Oslo"), ("n", "one")), False),
        (tagged(("city", "Oslo")), False),
        (tagged(name="now"), True),
        (tagged(("input", "ab/12"), name="pick"), True),
        (tagged(("input", "ab"), name="pick"), False),
        (tagged(("input", "*** Begin\n+x\n*** End"), name="patch"), True),
        (tagged(("input", "*** Begin\nx\n*** End"), name="patch"), False),
        (tagged(("input", "any\nthing"), name="write"), True),
        (tagged(name="other"), False),
        (tagged(name="now") + NEXT + tagged(name="now"), True),
    ],
)
def test_a_call_must_come_from_qwen_coder(text: str, is_allowed: bool) -> None:
    """Each parameter between its tags, text under its own grammar, the rest under its schema."""
    assert allows(CODER, REQUIRED, text) == is_allowed


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("commentary to=functions.get <|constrain|>json<|message|>" + GOOD, True),
        ("commentary to=functions.get<|message|>" + GOOD, True),
        ("commentary to=functions.get <|constrain|>json<|message|>" + BAD, False),
        ("commentary to=functions.get_more json<|message|>" + GOOD, True),
        ("commentary to=functions.pick<|message|>ab/12", True),
        ("commentary to=functions.pick<|message|>ab", False),
        ("commentary to=functions.patch<|message|>*** Begin\n+x\n*** End", True),
        ("commentary to=functions.patch<|message|>+x", False),
        ("commentary to=functions.write<|message|>any\nthing", True),
        ("final<|message|>I cannot.", False),
        ("analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>No.", False),
        (
            "analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary<|message|>So<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.now<|message|>{}",
            True,
        ),
    ],
)
def test_a_call_must_come_from_gpt_oss(text: str, is_allowed: bool) -> None:
    """Reasoning and a preamble may go first; then there is a call, and no answer."""
    assert allows(HARMONY, REQUIRED, text) == is_allowed


def test_reasoning_goes_before_a_call() -> None:
    """Qwen3 thinks to the end, then it must call."""
    call = "<tool_call>\n" + qwen_call(GOOD)
    assert allows(QWEN3, SINGLE, "Hm\n</think>\n\n" + call)
    assert not allows(QWEN3, SINGLE, "Hm\n</think>\n\nNo.")
    assert not allows(QWEN3, SINGLE, call)


# ---- calls that may come ----------------------------------------------------------------------------

AUTO = OutputSpec(tools=(STRICT, LOOSE))


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("Hello.", True),
        ("", True),
        ("I look.\n<tool_call>\n" + qwen_call(GOOD) + "\n</tool_call>", True),
        ("I look.\n<tool_call>\n" + qwen_call(BAD) + "\n</tool_call>", False),
        ("<tool_call>\n" + qwen_call('{"x": []}', "get_more") + "\n</tool_call>\nSo.", True),
        ("<tool_call>\n" + qwen_call(GOOD) + NEXT + qwen_call(BAD), False),
        ("<tool_call>\n" + qwen_call("{}", "other"), False),
        (qwen_call(GOOD), True),
        (qwen_call(BAD), False),
        (f"```json\n{qwen_call(GOOD)}\n```", True),
        (f"```json\n{qwen_call(BAD)}\n```", False),
        ('{\n  "name": "get",\n  "arguments": ' + BAD, False),
        (f"{{{qwen_call(GOOD)}}}", True),
        (f"{qwen_call(GOOD)}\n{qwen_call(GOOD)}", True),
        (qwen_call(BAD, "other"), True),
        ('{"name": "get"}', True),
        ("```json\n{}\n```", True),
        ("So: " + qwen_call(BAD), True),
    ],
)
def test_a_strict_tool_is_held_to_its_schema(text: str, is_allowed: bool) -> None:
    """Text is free until a call begins, in any form that the parser takes for one."""
    assert allows(QWEN, AUTO, text) == is_allowed
    calls = [each for each in brief(read(QWEN.parser(AUTO, []), text)) if isinstance(each, tuple)]
    assert not is_allowed or all(arguments == GOOD for name, arguments in calls if name == "get")


def test_strict_tools_of_other_families() -> None:
    """The same in their forms."""
    spec = OutputSpec(tools=(STRICT, LOOSE, LARK))
    assert allows(LLAMA, spec, "Hello.")
    assert allows(LLAMA, spec, llama_call(GOOD))
    assert not allows(LLAMA, spec, llama_call(BAD))
    assert allows(
        CODER, spec, "I look.\n\n<tool_call>\n" + tagged(("city", "x"), ("n", "1")) + "\n</tool_call>"
    )
    assert not allows(CODER, spec, "I look.\n\n<tool_call>\n" + tagged(("city", "x")))
    assert not allows(CODER, spec, tagged(("input", "x"), name="patch"))
    assert allows(CODER, spec, tagged(("whatever", "x"), name="get_more"))
    assert allows(QWEN3, spec, "Hm\n</think>\n\nHello.")
    assert not allows(QWEN3, spec, "Hm\n</think>\n\n" + qwen_call(BAD))
    thinking = "analysis<|message|>Hm<|end|><|start|>assistant<|channel|>"
    assert allows(HARMONY, spec, thinking + "final<|message|>Hello.")
    assert not allows(HARMONY, spec, thinking + "commentary to=functions.get<|message|>" + BAD)
    assert allows(HARMONY, spec, thinking + "commentary to=functions.get_more<|message|>" + BAD)


def test_what_llguidance_does_not_know_is_left_out_unless_strict() -> None:
    """A tool that is not strict must not fail because of its schema's odd words."""
    odd = {"type": "object", "properties": {"a": {"type": "string", "format": "odd", "not": {"const": "x"}}}}
    assert allows(
        QWEN, OutputSpec(tools=(Tool("t", parameters=odd),), choice="required"), qwen_call('{"a": "b"}', "t")
    )


def test_references_in_a_schema_reach_their_definitions() -> None:
    """Also where each parameter has a grammar of its own."""
    schema = {
        "type": "object",
        "properties": {"p": {"type": "object", "$ref": "#/$defs/point"}},
        "required": ["p"],
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    }
    spec = OutputSpec(tools=(Tool("t", parameters=schema, is_strict=True),), choice="required")
    assert allows(QWEN, spec, qwen_call('{"p": {"x": 1}}', "t"))
    assert not allows(QWEN, spec, qwen_call('{"p": {}}', "t"))
    assert allows(CODER, spec, tagged(("p", '{"x": 1}'), name="t"))
    assert not allows(CODER, spec, tagged(("p", "{}"), name="t"))


@pytest.mark.parametrize("name", ["a-b.c", 'q"uo\\te', "é☃", "a/b", "[x]*", "{1}"])
def test_names_may_be_odd(name: str) -> None:
    """Whatever a name is made of, calls of it can be written and read, and others not."""
    tool = Tool(name, parameters=SCHEMA, is_strict=True)
    for family, make in ((QWEN, qwen_call), (LLAMA, llama_call)):
        text = make(GOOD, json.dumps(name, ensure_ascii=False)[1:-1])
        for choice in ("auto", "required"):
            spec = OutputSpec(tools=(tool,), choice=choice)  # type: ignore[arg-type]
            assert allows(family, spec, text)
            assert not allows(family, spec, text.replace(GOOD, BAD))
        assert brief(read(family.parser(OutputSpec(tools=(tool,)), []), text)) == [(name, GOOD)]


def test_many_tools_are_no_trouble() -> None:
    """Sixty strict tools still make a grammar that compiles under the engine's limits."""
    tools = tuple(Tool(f"tool_{i}", parameters=SCHEMA, is_strict=True) for i in range(60))
    for family, text in ((QWEN, qwen_call(GOOD, "tool_59")), (LLAMA, llama_call(GOOD, "tool_59"))):
        for choice in ("auto", "required"):
            assert allows(family, OutputSpec(tools=tools, choice=choice), text)  # type: ignore[arg-type]


@given(st.text("a/\\\n.[]", max_size=6))
def test_a_pattern_fits_on_a_line_between_slashes(regex: str) -> None:
    """No slash ends it and no line break cuts it, whatever was escaped before."""
    inside = pattern(regex)[1:-1]
    assert "\n" not in inside
    plain = inside.replace("\\\\", "")
    assert plain.count("/") == plain.count("\\/")


# ---- what comes of any choice -----------------------------------------------------------------------


def walk(family: Family, spec: OutputSpec, choices: Iterator[int], limit: int = 400) -> str:
    """An answer that always takes one of the bytes that the grammar allows, and ends as soon as it may."""
    grammar = family.grammar(spec)
    assert grammar is not None
    matcher = compile_grammar(BYTES, Frame(grammar.kind, grammar.text))
    said = bytearray()
    for _ in range(limit):
        if matcher.is_accepting() and said:
            break
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [byte for byte in range(32, 127) if mask >> byte & 1] or [
            byte for byte in range(256) if mask >> byte & 1
        ]
        byte = allowed[next(choices) % len(allowed)]
        matcher.consume_token(byte)
        said.append(byte)
    return said.decode("utf-8", "replace") if matcher.is_accepting() else ""


@settings(max_examples=examples(60))
@given(seed=st.randoms(use_true_random=False))
def test_any_forced_call_is_a_call(seed: object) -> None:
    """Whatever is chosen under the grammar, the parser finds one call whose arguments fit the schema."""
    choices = iter(lambda: seed.randrange(1000), -1)  # type: ignore[attr-defined]
    for family in (QWEN, LLAMA, CODER):
        text = walk(family, SINGLE, choices)
        log = family.answer([], SINGLE)
        if not text:
            continue  # a string that never ended
        tokenizer = family.tokenizer  # type: ignore[attr-defined]
        parts = read_tokens(family.parser(SINGLE, log), family, tokenizer, tokenizer.encode(text))
        ((name, arguments),) = brief(parts)
        value = json.loads(arguments)
        assert name == "get"
        assert {"city", "n"} <= value.keys() <= SCHEMA["properties"].keys()  # type: ignore[attr-defined]
        assert isinstance(value["n"], int)
        assert value.get("unit", "c") in ("c", "f")
