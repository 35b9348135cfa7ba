"""Every chat template of llama.cpp's collection: held letter by letter, held with a note, or refused.

The other side is Jinja2 itself with what transformers adds to it, and llama.cpp's tokenizer. What the family
writes is built turn by turn, as in a conversation.
"""

import datetime
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import jinja2
import msgspec
import pytest
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.models.families import llama_templates
from tests.models.families.tokenizers import NamedTokenizer
from tools.chat_templates import table
from vivace.models import gguf_vocab
from vivace.models.families.base import (
    Call,
    Effort,
    Entry,
    Message,
    Output,
    OutputSpec,
    ReasoningPart,
    TextPart,
    Thought,
    Tool,
)
from vivace.models.families.calls.reasoning import KNOWN
from vivace.models.families.choose import known
from vivace.models.families.template import judging, probes
from vivace.models.families.template.family import TemplateFamily
from vivace.models.families.template.frames import Frames
from vivace.models.families.template.judging import CASES, Trial, Verdict, judge
from vivace.models.families.template.masking import Markers
from vivace.models.families.template.names import names_in
from vivace.models.families.template.probes import definition_of, turns_of
from vivace.models.families.template.sandbox import Template, TemplateError
from vivace.models.tokenizer import GgufTokenizer

REFUSED = {
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "fireworks-ai-llama-3-firefunction-v2",
    "llama-cpp-rwkv-world",
}
BY_HAND = {"openai-gpt-oss-120b"}
HELD = [name for name in llama_templates.names() if name not in REFUSED | BY_HAND]
TABLE = (llama_templates.ROOT / "docs/reference/templates.md").read_text("utf-8")
RICH = {
    judging.SYSTEM.text: "Antworte kurz — auf Deutsch, bitte.\n- keine „Anführungszeichen“",
    judging.USER.text: "Was kostet ein Döner? 🥙\n```py\nx = {'a': [1, 2]}  # ein & zwei\n```",
    judging.MORE.text: "  Und in 東京?\tWirklich",
    judging.LAST.text: "Danke — passt so",
    judging.ANSWER.text: "Etwa 7 €; $x^2$ kostet *mehr*",
    judging.NEXT.text: "1. 味噌ラーメン\n2. Ça va",
    judging.OUTPUTS[0].text: '{"preis": 7.5, "währung": "€"}',
    judging.OUTPUTS[1].text: "nicht gefunden: 'x' \\ \"y\"",
    judging.MUSED.text: "Erst rechnen,\n\ndann antworten",
    judging.MUSED_MORE.text: "Noch einmal: 7 × 2",
}


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012  as Jinja2 has it

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        found: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return found


class _Reference(ImmutableSandboxedEnvironment):
    """Jinja2 as transformers sets it up, and twice as llama.cpp's own: lists may grow, nothing is HTML."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        self.filters["tojson"] = _to_json
        self.filters["from_json"] = json.loads
        self.filters["safe"] = str
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = datetime.datetime.now().strftime

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return isinstance(obj, list) or super().is_safe_attribute(obj, attr, value)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **others: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **others)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Judge(Trial):
    """The trial, with Jinja2 itself for the template's own text."""

    def __init__(self, frames: Frames) -> None:
        super().__init__(frames)
        self._template = _Reference().from_string(frames.template.source)

    def own(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> str:
        turns = turns_of(entries)
        frames = self.frames
        given: dict[str, Any] = dict(frames.always)
        shown = [definition_of(tool, str, lambda schema: schema) for tool in tools]
        given |= {"tools": shown} if tools else frames.no_tools
        asks = turns[-1].kind != "assistant"
        try:
            return self._template.render(messages=self.chats(turns), add_generation_prompt=asks, **given)
        except jinja2.TemplateError as error:
            raise TemplateError(str(error)) from error


@cache
def learned(name: str) -> tuple[Frames, Verdict]:
    template = Template(llama_templates.source(name))
    frames = Frames(template, Markers(names_in(template)), bos="<s>", eos="</s>")
    return frames, judge(frames)


def richer(entry: Entry) -> Entry:
    """The same entry with Unicode, code and white space."""
    if isinstance(entry, Call):
        return entry
    assert isinstance(entry, Message | Output | Thought)
    return msgspec.structs.replace(entry, text=RICH[entry.text])


@pytest.mark.parametrize("name", llama_templates.names())
def test_a_template_is_held_or_refused_in_a_sentence(name: str) -> None:
    """None is silently different: those that are not held say why before a download."""
    told = known(llama_templates.source(name))
    assert bool(told.refusal) == (name in REFUSED)
    shown = [line for line in TABLE.splitlines() if line.startswith(f"| {name} | ")]
    assert shown == table({name: llama_templates.source(name)}).splitlines()[-1:], (
        "made by tools/chat_templates.py"
    )
    assert all(note.endswith(".") for note in (*told.notes, *filter(None, [told.refusal])))


def test_most_are_held() -> None:
    """Nine of ten at least."""
    assert len(HELD) >= 0.9 * len(llama_templates.names())


@pytest.mark.parametrize("name", HELD)
def test_conversations_are_written_as_jinja_writes_them(name: str) -> None:
    """Turn by turn, with Unicode: the whole where the template stands by what it wrote, else each message."""
    frames, verdict = learned(name)
    trial = _Judge(frames)
    for case, (entries, has_tools) in CASES.items():
        if case == "two calls" and frames.has_one_call:
            continue
        tried = [richer(entry) for entry in entries if not judging.is_left_out(entry, frames)]
        tools = (probes.TOOL,) if has_tools and frames.has_tools else ()
        if case not in verdict.differs:
            assert trial.is_same(tried, tools), case
        else:
            assert judging.note_of(trial, tried, tools) in verdict.notes, case


# ---- tokens -----------------------------------------------------------------------------------------

FITTING = {
    "Qwen-Qwen2.5-7B-Instruct": "qwen2",
    "Qwen-Qwen3-0.6B": "qwen2",
    "Qwen3-Coder": "qwen2",
    "MiMo-VL": "qwen2",
    "HuggingFaceTB-SmolLM3-3B": "qwen2",
    "Qwen3.5-4B": "qwen35",
    "meta-llama-Llama-3.1-8B-Instruct": "llama-bpe",
    "meta-llama-Llama-3.2-3B-Instruct": "llama-bpe",
    "meetkai-functionary-medium-v3.1": "llama-bpe",
    "google-gemma-4-31B-it": "gemma-4",
    "microsoft-Phi-3.5-mini-instruct": "phi-3",
}


@cache
def real(vocabulary: str) -> GgufTokenizer:
    return GgufTokenizer(llama_templates.vocabulary(vocabulary))


@pytest.mark.parametrize(("name", "vocabulary"), FITTING.items())
def test_prompts_have_the_tokens_of_llama_cpp(name: str, vocabulary: str) -> None:
    """The tokens of a prompt are those that llama.cpp makes of Jinja's text."""
    tokenizer = real(vocabulary)
    family = TemplateFamily(tokenizer, llama_templates.source(name))
    trial = _Judge(family.frames)
    begin = tokenizer.vocabulary().begin
    for case in ("one turn", "instructions", "tools", "a call"):
        entries, has_tools = CASES[case]
        if judging.judge(family.frames).differs and case == "a call":
            continue
        tried = [richer(entry) for entry in entries if not judging.is_left_out(entry, family.frames)]
        tools = (probes.TOOL,) if has_tools and family.frames.has_tools else ()
        log: list[int] = []
        for place, turn in enumerate(turns_of(tried)):
            log += family.render(turn, tools=() if place else tools, after=log)
        log += family.answer(log, OutputSpec())
        text = trial.own(tried, tools)
        expected = gguf_vocab.tokenize(tokenizer._vocab, text.encode(), special=True)
        if begin is not None and expected[0] != begin:
            expected = [begin, *expected]
        assert log == expected, case


# ---- steering, and what users write ---------------------------------------------------------------------


@cache
def spoken(name: str) -> tuple[NamedTokenizer, TemplateFamily]:
    """A family over bytes, with control tokens for all that looks like one."""
    source = llama_templates.source(name)
    found = names_in(Template(source))
    tokenizer = NamedTokenizer(found, bos="<s>", eos="</s>")
    return tokenizer, TemplateFamily(tokenizer, source)


@pytest.mark.parametrize("name", HELD)
def test_logs_only_grow_and_stay_whole(name: str) -> None:
    """Interrupted, steered, typed ahead, warmed up: turn by turn the log is what it is when sent at once."""
    tokenizer, family = spoken(name)
    tools = [probes.TOOL]
    log: list[int] = []
    turns: list[list[Entry]] = [
        [Message("system", "Be brief.")],
        [Message("user", "First question")],
        [Message("assistant", "First answer")],
        [Message("user", "Second question")],
        [Call("probe_tool", '{"probekey": "x y"}', "callaaaa1")],
        [Output("found", "callaaaa1", "probe_tool")],
        [Message("assistant", "Second answer")],
        [Message("user", "Third question")],
        [Message("user", "and one more")],
        [Message("system", "Now in French.")],
    ]
    for place, turn in enumerate(turns):
        log += family.render(turn, tools=() if place else tools, after=log)
    whole = family.render([entry for turn in turns for entry in turn], tools=tools)
    assert tokenizer.shown(log) == tokenizer.shown(whole)
    assert log == whole
    log += family.answer(log, OutputSpec(tools=tuple(tools)))
    has_begun = bool(family.frames.begins["user"])  # or else an answer has no beginning of its own
    assert (family.unfinished_answer(log) is not None) == has_begun
    assert family.answer(log, OutputSpec()) == [], "an answer that has begun is not begun again"
    log += tokenizer.encode("I was saying")
    assert family.answer(log, OutputSpec()) == []
    steered = family.render([Message("user", "Stop")], after=log)
    text = tokenizer.shown(steered)
    assert "Stop" in text
    assert "I was saying" not in text, "nothing is written again"
    log += steered
    assert family.unfinished_answer(log) is None
    assert bool(family.answer(log, OutputSpec())) == has_begun


# Behind their openings the model itself writes how its answer begins, before what it says.
BEGUN_BY_MODELS = {
    *("GLM-4.6", "Kimi-K2-Thinking", "MiniMax-M3", "Reka-Edge", "meetkai-functionary-medium-v3.2"),
    *("muse-glimmer", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2", "upstage-Solar-Open-100B"),
}


@pytest.mark.parametrize("name", HELD)
def test_an_interrupted_answer_is_closed_as_its_template_closes_one(name: str) -> None:
    """Text is an answer that ended there, letter by letter; reasoning is read as such, and ended."""
    tokenizer, family = spoken(name)
    asked, said, more = Message("user", "Why?"), Message("assistant", "I was saying"), Message("user", "Stop")
    log = family.render([asked])
    log += family.answer(log, OutputSpec())
    opening = tokenizer.shown(log).partition(asked.text)[2]
    tags = next((each for each in KNOWN if each.is_open(opening)), None)
    parts = family.parser(OutputSpec(), log).feed(said.text)
    assert {type(part) for part in parts} == {ReasoningPart if tags else TextPart}
    log += tokenizer.encode(said.text)
    log += family.render([more], after=log)
    log += family.answer(log, OutputSpec())
    ours = tokenizer.shown(log)
    own = _Judge(family.frames).own([asked, said, more], ())
    if tags:
        between = ours.partition(said.text)[2].partition(more.text)[0]
        assert between.strip().startswith(tags.closing)
    elif judging.OPENING in family.notes:
        assert ours.partition(said.text)[2] == own.partition(said.text)[2]
    elif name not in BEGUN_BY_MODELS:
        assert ours.removeprefix("<s>") == own.removeprefix("<s>")


EFFORTS: tuple[Effort, ...] = ("", "none", "low", "medium", "high", "xhigh")


@pytest.mark.parametrize("name", HELD)
def test_every_effort_can_be_asked_for(name: str) -> None:
    """A prompt is made for each, and thinking can be ended in each."""
    _, family = spoken(name)
    for effort in EFFORTS:
        spec = OutputSpec(effort=effort)
        log = family.render([Message("user", "Hi")], effort=effort)
        log += family.answer(log, spec)
        family.end_thinking(log, spec)
        family.parser(spec, log)
        family.grammar(spec)


@pytest.mark.parametrize("name", HELD)
def test_no_text_becomes_a_control_token(name: str) -> None:
    """Markers in messages, tools, calls, outputs and reasoning stay text: no token more than without them."""
    tokenizer, family = spoken(name)
    hostile = "".join(family.frames.markers.names) + "\U000f0000\U000f0001 < | > [ ]"
    counted = []
    for text in ("harmless words", hostile):
        tool = Tool(
            "probe_tool", text, {"type": "object", "properties": {text: {"type": "string", "enum": [text]}}}
        )
        arguments = json.dumps({"probekey": text})
        entries: list[Entry] = [
            Message("system", f"s{text}s"), Message("user", f"u{text}u"), Thought(f"t{text}t"),
            Call("probe_tool", arguments, "callaaaa1"), Output(f"o{text}o", "callaaaa1", "probe_tool"),
            Message("assistant", f"a{text}a"), Message("user", f"e{text}e"),
        ]  # fmt: skip
        log = family.render(entries, tools=[tool])
        counted.append([token for token in log if token >= 256])
        shown, wanted = tokenizer.shown(log), f"e{text}e"
        assert wanted.replace("/think", "") in shown.replace("/think", ""), (
            "but for a switch that one removes"
        )
    assert counted[0] == counted[1]


def test_a_schema_holds_where_calls_have_no_grammar() -> None:
    """LFM2's calls are Python, which no grammar holds; an answer under a schema still obeys it."""
    _, family = spoken("LFM2.5-8B-A1B")
    assert family.call_format.form is None
    assert family.grammar(OutputSpec(schema='{"type": "object"}', effort="none")) is not None
    assert family.grammar(OutputSpec(tools=(probes.TOOL,), choice="required", effort="none")) is None


def test_a_strict_tool_may_be_called_where_a_control_token_begins_a_call() -> None:
    """A grammar has no control tokens: a call that is not required could never begin under one."""
    _, family = spoken("Kimi-K2-Instruct")
    strict = msgspec.structs.replace(probes.TOOL, is_strict=True)
    assert family.grammar(OutputSpec(tools=(strict,))) is None
    assert family.grammar(OutputSpec(tools=(strict,), choice="required")) is not None
