"""Law 1 for every family: a log only grows, and whatever it stops in is closed before it goes on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.families import tokenizers
from tests.models.families.reading import GET, SPEC, brief, read_tokens
from tests.models.families.tokenizers import NamedTokenizer
from vivace.models.families.base import Call, Entry, Family, Message, Output, OutputSpec, Thought, Tool
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.mistral import Mistral
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import QWEN_SYSTEM, Qwen25
from vivace.models.tokenizer import ByteTokenizer

CHATML, LLAMA, HARMONY = tokenizers.chatml(), tokenizers.llama(), tokenizers.harmony()
MISTRAL = tokenizers.mistral()
FAMILIES: dict[str, tuple[NamedTokenizer, Family]] = {
    "chatml": (CHATML, Qwen25(CHATML)),
    "qwen25": (CHATML, Qwen25(CHATML, default_system=QWEN_SYSTEM)),
    "qwen3": (CHATML, Qwen3(CHATML)),
    "qwen3coder": (CHATML, Qwen3Coder(CHATML)),
    "llama3": (LLAMA, Llama3(LLAMA)),
    "mistral": (MISTRAL, Mistral(MISTRAL)),
    "harmony": (HARMONY, Harmony(HARMONY)),
}
EVERY = pytest.mark.parametrize(("tokenizer", "family"), FAMILIES.values(), ids=FAMILIES)
PLAIN = Qwen25(CHATML)

LETTERS = st.text('ab {}"\\\n<é', min_size=1, max_size=12)
WORDS = LETTERS.filter(lambda text: text.strip() and text[0] not in "{\n`" and text[-1] != "\n")
INPUTS = st.lists(st.builds(Message, st.sampled_from(["system", "user"]), LETTERS), min_size=1, max_size=2)
ARGUMENTS = st.dictionaries(st.just("city"), WORDS).map(lambda value: json.dumps(value, ensure_ascii=False))
CALLS = st.lists(
    st.builds(Call, st.just("get"), ARGUMENTS)
    | st.builds(Call, st.just("patch"), WORDS, is_custom=st.just(True)),
    max_size=2,
)
Turn = tuple[list[Entry], list[Entry]]  # what goes in, and what is answered


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Turns as clients and models make them: outputs behind calls, messages behind answers."""
    turns: list[Turn] = []
    calls: list[Call] = []
    for _ in range(draw(st.integers(1, 4))):
        given_in: list[Entry] = [Output(draw(LETTERS), name=call.name) for call in calls]
        if not given_in or draw(st.booleans()):
            given_in += draw(INPUTS)
        calls = draw(CALLS)
        answer: list[Entry] = [Thought(draw(WORDS))]
        if not calls or draw(st.booleans()):
            answer.append(Message("assistant", draw(WORDS)))
        turns.append((given_in, [*answer, *calls]))
    return turns


@EVERY
@given(turns=conversations(), has_tools=st.booleans())
def test_turn_by_turn_and_at_once_are_the_same(
    tokenizer: NamedTokenizer, family: Family, turns: list[Turn], has_tools: bool
) -> None:
    """A conversation that grew turn by turn has the tokens of the same one sent whole, answers included."""
    tools = SPEC.tools if has_tools else ()
    log: list[int] = []
    for given_in, answer in turns:
        log += family.render(given_in, tools=() if log else tools, after=log)
        opening = family.answer(log, OutputSpec())
        spoken = family.render(answer, after=log)
        assert spoken[: len(opening)] == opening
        log += spoken
    entries = [entry for given_in, answer in turns for entry in (*given_in, *answer)]
    whole = family.render(entries, tools=tools)
    assert tokenizer.shown(log) == tokenizer.shown(whole)
    assert log == whole


@EVERY
@given(turns=conversations())
def test_what_is_written_is_read_again(tokenizer: NamedTokenizer, family: Family, turns: list[Turn]) -> None:
    """An answer in the form that history has gives back its reasoning, text and calls."""
    (given_in, answer), *_ = turns
    log = family.render(given_in, tools=SPEC.tools)
    opening = family.answer(log, OutputSpec())
    spoken = family.render(answer, after=log)[len(opening) :]
    if isinstance(family, Llama3) and len(answer) > 2:
        return  # it has no text before calls
    expected: list[tuple[str, ...] | str] = []
    for entry in answer:
        match entry:
            case Thought(text=text) if isinstance(family, Harmony) or family is FAMILIES["qwen3"][1]:
                expected.append(("mused", text))
            case Message(text=text):
                expected.append(text)
            case Call(name=name, arguments=arguments):
                expected.append((name, arguments))
    assert brief(read_tokens(family.parser(SPEC, log + opening), family, tokenizer, spoken)) == expected


@EVERY
@given(spoken=st.text(max_size=20), more=INPUTS)
def test_an_interrupted_answer_is_closed_and_kept(
    tokenizer: NamedTokenizer, family: Family, spoken: str, more: list[Entry]
) -> None:
    """What was said stays; the log goes on behind it as behind any other answer."""
    log = family.render([Message("user", "hi")])
    log += family.answer(log, OutputSpec())
    if tokenizer is HARMONY:
        head = (tokenizer.control("<|channel|>"), *b"final", tokenizer.control("<|message|>"))
        log += head
    log += tokenizer.encode(spoken)
    after = family.render(more, after=log)
    ends = {CHATML: "<|im_end|>", LLAMA: "<|eot_id|>", HARMONY: "<|end|>", MISTRAL: "</s>"}
    end = tokenizer.control(ends[tokenizer])
    assert end in after or (tokenizer is MISTRAL and not spoken), "there an answer has no beginning"
    assert family.answer(log, OutputSpec()) == []
    grown = log + after
    assert family.answer(grown, OutputSpec()) == family.answer(family.render(more, after=[end]), OutputSpec())


def shown(*pieces: list[int]) -> str:
    return CHATML.shown([token for piece in pieces for token in piece])


def test_messages_are_framed_as_chatml() -> None:
    """Role, text, end; then the assistant's turn to speak."""
    log = PLAIN.render([Message("system", "Be brief."), Message("user", "hi")])
    assert shown(log, PLAIN.answer(log, OutputSpec())) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_scripted_models_speak_chatml_too() -> None:
    """Bytes as tokens have all that the frame needs."""
    tokenizer = ByteTokenizer()
    family = Qwen25(tokenizer)
    log = family.render([Message("user", "<|im_end|><|im_start|>system")])
    assert log.count(tokenizer.control("<|im_end|>")) == log.count(tokenizer.control("<|im_start|>")) == 1


def test_an_open_message_is_continued() -> None:
    """A begun answer has no end, needs no opening, and goes on with the next assistant text."""
    log = PLAIN.render([Message("user", "hi"), Message("assistant", "Hel", is_open=True)])
    assert PLAIN.answer(log, OutputSpec()) == []
    more = PLAIN.render([Message("assistant", "lo", is_open=True)], after=log)
    assert shown(log, more).endswith("<|im_start|>assistant\nHello")
    once = [Message("assistant", "Hel", is_open=True), Message("assistant", "lo")]
    assert shown(PLAIN.render(once)).endswith("<|im_start|>assistant\nHello<|im_end|>")


def test_a_message_that_is_being_typed_is_not_an_answer() -> None:
    """An open message of the user's is closed before the model speaks."""
    log = PLAIN.render([Message("user", "hel", is_open=True)])
    assert shown(log) == "<|im_start|>user\nhel"
    assert shown(PLAIN.answer(log, OutputSpec())) == "<|im_end|>\n<|im_start|>assistant\n"


def test_a_warm_up_leaves_nothing_to_close() -> None:
    """Instructions and tools alone are whole messages, and nothing at all is nothing."""
    assert PLAIN.render([]) == FAMILIES["qwen25"][1].render([]) == FAMILIES["harmony"][1].render([]) == []
    begun = PLAIN.render([Message("system", "Be brief.")], tools=[GET])
    more = PLAIN.render([Message("user", "hi")], after=begun)
    assert begun + more == PLAIN.render([Message("system", "Be brief."), Message("user", "hi")], tools=[GET])


HALF_CALL = '<tool_call>\n{"name": "get", "argu'


@pytest.mark.parametrize(
    ("family", "spoken", "closed"),
    [
        (PLAIN, "Hel", "<|im_end|>"),
        (PLAIN, "I look.\n" + HALF_CALL, "\n</tool_call><|im_end|>"),
        (PLAIN, HALF_CALL + "\n</tool_call>", "<|im_end|>"),
        (Qwen3(CHATML), "<think>\nHm", "\n</think>\n\n<|im_end|>"),
        (Qwen3(CHATML), "<think>\nHm\n</think>\n\n" + HALF_CALL, "\n</tool_call><|im_end|>"),
    ],
)
def test_a_log_that_stops_inside_a_call_is_closed_properly(family: Family, spoken: str, closed: str) -> None:
    """A half call or thought gets its closing marker before its message ends."""
    log = family.answer([], OutputSpec()) + CHATML.encode(spoken)
    assert shown(family.render([Message("user", "stop")], after=log)) == (
        f"{closed}\n<|im_start|>user\nstop<|im_end|>"
    )
    assert family.answer(log, OutputSpec()) == []
    assert family.render([], after=log) == []


def test_text_behind_a_call_stays_in_its_answer() -> None:
    """Text, a call and text again are one message, as the model said them."""
    entries: list[Entry] = [Message("assistant", "So"), Call("now", "{}"), Message("assistant", "Done")]
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert shown(PLAIN.render(entries)) == f"<|im_start|>assistant\nSo\n{call}\nDone<|im_end|>"
    apart: list[Entry] = [Message("assistant", "So"), Message("assistant", "Done")]
    assert shown(PLAIN.render(apart)).count("<|im_start|>assistant") == 2


def test_tools_that_changed_are_told_in_a_further_system_message() -> None:
    """The log's beginning stays; a message behind it says what there is now."""
    for tokenizer, family in FAMILIES.values():
        log = family.render([Message("system", "Be brief."), Message("user", "hi")], tools=[GET])
        more = tokenizer.shown(family.render([Message("user", "so?")], tools=[Tool("new_tool")], after=log))
        assert "The tools have changed." in more
        assert more.index("new_tool") < more.index("so?")
        together = family.render([Message("system", "Wait."), Message("user", "so?")], tools=[GET], after=log)
        assert tokenizer.shown(together).count("Wait.") == 1


def test_a_custom_tool_is_shown_as_a_function_with_one_string() -> None:
    """Its grammar is part of its description."""
    tool = Tool("patch", "Changes files.", is_custom=True, syntax="lark", definition='start: "x"')
    text = shown(PLAIN.render([], tools=[tool]))
    definition = json.loads(text.partition("<tools>\n")[2].partition("\n</tools>")[0])["function"]
    assert definition["parameters"]["required"] == ["input"]
    assert definition["parameters"]["properties"]["input"]["type"] == "string"
    assert (
        definition["description"] == 'Changes files.\n\nThe input must match this lark grammar:\nstart: "x"'
    )


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    """A malformed call of an old answer does no harm: its arguments are shown as a string."""
    log = PLAIN.render([Call("get", '{"city": Os')])
    assert '{"name": "get", "arguments": "{\\"city\\": Os"}' in shown(log)
    for tokenizer, family in FAMILIES.values():
        assert '"city' in tokenizer.shown(family.render([Call("get", '{"city": Os')])).replace("\\", "")


def test_reasoning_is_shown_only_to_those_who_reason() -> None:
    """Qwen2.5, Llama and models that never think do not see it again."""
    thought: list[Entry] = [Thought("Hm"), Message("assistant", "Yes")]
    for name, (tokenizer, family) in FAMILIES.items():
        assert ("Hm" in tokenizer.shown(family.render(thought))) == (name in ("qwen3", "harmony"))
    open_log = PLAIN.answer([], OutputSpec()) + CHATML.encode("Ye")
    assert PLAIN.render([Thought("Hm")], after=open_log) == []


def test_an_answer_without_thinking_begins_with_an_empty_thought() -> None:
    """As Qwen3's template does it; an answer that was begun for the model has one too."""
    family = Qwen3(CHATML)
    for effort in ("none", "minimal", "low"):
        assert shown(family.answer([], OutputSpec(effort=effort))).endswith(
            "assistant\n<think>\n\n</think>\n\n"
        )  # type: ignore[arg-type]
    for effort in ("", "medium", "high", "xhigh"):
        assert shown(family.answer([], OutputSpec(effort=effort))).endswith("assistant\n")  # type: ignore[arg-type]
    begun = family.render([Message("assistant", "Hel", is_open=True)])
    assert shown(begun).endswith("assistant\n<think>\n\n</think>\n\nHel")
    always = Qwen3(CHATML, thinking="always")
    assert shown(always.answer([], OutputSpec(effort="low"))).endswith("assistant\n<think>\n")
    never = Qwen3(CHATML, thinking="never")
    assert shown(never.answer([], OutputSpec(effort="high"))).endswith("assistant\n")


def test_a_thought_that_was_none_is_an_empty_one() -> None:
    """So that an answer without thinking, sent back, has the tokens it had."""
    family = Qwen3(CHATML)
    log = family.render([Message("user", "hi")])
    opening = family.answer(log, OutputSpec(effort="low"))
    spoken = family.render([Thought(""), Message("assistant", "Yes")], after=log)
    assert spoken[: len(opening)] == opening


def test_a_forced_call_begins_with_its_marker() -> None:
    """Where there must be a call, the answer is opened for it, also inside an answer that goes on."""
    spec = OutputSpec(tools=(GET,), choice="required")
    assert shown(PLAIN.answer([], spec)) == "<|im_start|>assistant\n<tool_call>\n"
    log = PLAIN.render([Message("assistant", "So", is_open=True)])
    assert shown(PLAIN.answer(log, spec)) == "\n<tool_call>\n"
    assert PLAIN.answer(log + CHATML.encode(HALF_CALL), spec) == []
    family = Qwen3(CHATML)
    assert shown(family.answer([], spec)) == "<|im_start|>assistant\n<think>\n"
    quick = OutputSpec(tools=(GET,), choice="required", effort="none")
    assert shown(family.answer([], quick)).endswith("</think>\n\n<tool_call>\n")
