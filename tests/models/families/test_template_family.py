"""Families made from templates: what users write stays text, and every turn can be written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.families.reading import GET, SPEC, brief, read_tokens
from tests.models.families.tokenizers import NamedTokenizer
from vivace.models.families.base import Call, Entry, Interruption, Message, Output, OutputSpec, Thought, Tool
from vivace.models.families.template.family import TemplateFamily
from vivace.models.families.template.masking import Markers, Mask
from vivace.models.families.template.sandbox import TemplateError

CHATML = """{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% if tools %}
<tools>{% for t in tools %}{{ t|tojson }}{% endfor %}</tools>{% endif %}<|im_end|>
{% endif %}{%- for m in messages %}{% if m.role == 'user' %}<|im_start|>user
{{ m.content|trim }}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif not loop.first %}<|im_start|>system
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
GEMMA = (
    "{{ bos_token }}{% set first = '' %}{% set talk = messages %}"
    "{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}"
    "{% set talk = messages[1:] %}{% endif %}{% for m in talk %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{{ (first if loop.first else '') + m.content|trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
NAMES = ("<|im_start|>", "<|im_end|>")
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TURNS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")


def chatml() -> tuple[NamedTokenizer, TemplateFamily]:
    tokenizer = NamedTokenizer(NAMES, WORDS, ends=["<|im_end|>"], eos="<|im_end|>")
    return tokenizer, TemplateFamily(tokenizer, CHATML)


def gemma() -> tuple[NamedTokenizer, TemplateFamily]:
    tokenizer = NamedTokenizer(TURNS, ends=["<end_of_turn>"], bos="<bos>", eos="<eos>")
    return tokenizer, TemplateFamily(tokenizer, GEMMA)


TOKENIZER, FAMILY = chatml()
PIECES = st.sampled_from(
    [*NAMES, *WORDS, "<", "|", "im_start|>", "<|im_", "think", "\U000f0000", "\U000f0001", "é", " "]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=8).map(lambda pieces: f"a{''.join(pieces)}z")


@given(texts=st.lists(TEXTS, min_size=8, max_size=8))
def test_no_text_becomes_a_token_of_the_template(texts: list[str]) -> None:
    """Whatever stands in values, also where they meet the template's text: the same tokens as without."""

    def written(texts: list[str]) -> list[int]:
        tool = Tool(texts[0], texts[1], {"type": "object", "properties": {texts[2]: {"type": "string"}}})
        call = Call(texts[0], json.dumps({texts[2]: texts[3]}), texts[4])
        entries: list[Entry] = [
            Message("system", texts[5]), Message("user", texts[6]), Thought(texts[7]),
            Message("assistant", texts[1]), call,
            Output(texts[2], texts[4], texts[0]), Message("user", texts[3]),
        ]  # fmt: skip
        return FAMILY.render(entries, tools=[tool])

    log = written(texts)
    plain = written([f"harmless{place}" for place in range(8)])
    assert [token for token in log if token >= 256] == [token for token in plain if token >= 256]
    assert texts[3] in TOKENIZER.shown(log)
    assert texts[6] in TOKENIZER.shown(log)


@given(text=st.text(), other=st.text())
def test_masks_keep_lengths_and_come_off(text: str, other: str) -> None:
    """One character for each, none that is a marker's, and all of it comes back."""
    markers = Markers(["<|im_end|>", "[INST]", "<think>"])
    mask = Mask(markers, text + other)
    masked = mask.text(text)
    assert len(masked) == len(text)
    assert not markers.has_any(masked + "im_end|>")
    assert "".join(mask.pieces(masked)) == text


def test_a_value_that_completes_a_marker_stays_text() -> None:
    """A template that puts a name between brackets does not make a token of it."""
    mask = Mask(Markers(["<think>"]), "")
    [piece] = mask.pieces(f"<{mask.text('think')}>")
    assert piece == "<think>"


def test_instructions_of_a_first_message_wait_for_it() -> None:
    """Where the template puts them into the user's message, a warm-up ends inside of it."""
    tokenizer, family = gemma()
    log = family.render([Message("system", "Be brief.")])
    assert tokenizer.shown(log) == "<bos><start_of_turn>user\nBe brief.\n\n"
    log += family.render([Message("user", " hi ")], after=log)
    assert tokenizer.shown(log) == "<bos><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n"
    assert log == family.render([Message("system", "Be brief."), Message("user", " hi ")])


def test_two_messages_in_a_row_are_written_where_a_template_refuses_them() -> None:
    """No turn fails: each stands in its frame."""
    tokenizer, family = gemma()
    log = family.render([Message("user", "one"), Message("user", "two"), Message("system", "three")])
    log += family.answer(log, OutputSpec())
    framed = "".join(f"<start_of_turn>user\n{text}<end_of_turn>\n" for text in ("one", "two", "three"))
    assert tokenizer.shown(log) == f"<bos>{framed}<start_of_turn>model\n"


def test_an_interrupted_answer_is_closed_and_its_request_is_quoted() -> None:
    """Reasoning and calls that were begun are closed, and the message says what it is about."""
    log = FAMILY.render([Message("user", "Count to nine")])
    log += FAMILY.answer(log, OutputSpec()) + TOKENIZER.encode("<think>\nHm")
    more = FAMILY.render([Interruption(), Message("user", "in French")], after=log)
    shown = TOKENIZER.shown(more)
    assert shown.startswith("\n</think>\n\n<|im_end|>\n<|im_start|>user\n")
    assert "Count to nine" in shown
    log = FAMILY.render([Message("user", "hi")])
    log += FAMILY.answer(log, OutputSpec()) + TOKENIZER.encode('<tool_call>\n{"name')
    shown = TOKENIZER.shown(FAMILY.render([Message("user", "stop")], after=log))
    assert shown == "\n</tool_call><|im_end|>\n<|im_start|>user\nstop<|im_end|>\n"


def test_an_open_answer_is_continued() -> None:
    """A begun answer has no end, needs no opening, and goes on with the next assistant text."""
    log = FAMILY.render([Message("user", "hi"), Message("assistant", "Hel", is_open=True)])
    assert FAMILY.answer(log, OutputSpec()) == []
    log += FAMILY.render([Message("assistant", "lo", is_open=True)], after=log)
    assert TOKENIZER.shown(log).endswith("<|im_start|>assistant\nHello")
    once: list[Entry] = [Message("user", "hi"), Message("assistant", "Hello")]
    assert FAMILY.render(once) == [*log, TOKENIZER.control("<|im_end|>")]


def test_changed_tools_are_told_of() -> None:
    """Tools that come later stand in a message of their own."""
    log = FAMILY.render([Message("user", "hi")])
    shown = TOKENIZER.shown(FAMILY.render([Message("user", "and?")], tools=[GET], after=log))
    assert "The tools have changed" in shown
    assert '"get"' in shown


def test_what_the_template_writes_is_read_again() -> None:
    """Reasoning, text and calls of an answer come back from its tokens."""
    log = FAMILY.render([Message("user", "hi")], tools=SPEC.tools)
    opening = FAMILY.answer(log, SPEC)
    said: list[Entry] = [Thought("Hm."), Message("assistant", "So"), Call("get", '{"city": "Oslo"}')]
    spoken = FAMILY.render(said, after=log)
    assert spoken[: len(opening)] == opening
    parts = read_tokens(FAMILY.parser(SPEC, log + opening), FAMILY, TOKENIZER, spoken[len(opening) :])
    assert brief(parts) == [("mused", "Hm."), "So", ("get", '{"city": "Oslo"}')]


def test_thinking_can_be_ended_or_skipped() -> None:
    """In the middle of it, and before it began."""
    log = FAMILY.render([Message("user", "hi")])
    log += FAMILY.answer(log, OutputSpec())
    assert TOKENIZER.shown(FAMILY.end_thinking(log, OutputSpec())) == "<think>\n\n</think>\n\n"
    log += TOKENIZER.encode("<think>\nHm")
    assert TOKENIZER.shown(FAMILY.end_thinking(log, OutputSpec())) == "\n</think>\n\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:", "plain text"),
        ("{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}", "leaves out a message"),
        ("{{ raise_exception('never') }}", "never"),
    ],
)
def test_a_template_that_cannot_be_held_says_why(source: str, why: str) -> None:
    """In a clause that a sentence can end with."""
    with pytest.raises(TemplateError, match=why):
        TemplateFamily(TOKENIZER, source)
