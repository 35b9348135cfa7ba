"""Grammars over vocabularies with markers: a model may say each marker as the one token it has for it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.models.families import tokenizers
from tests.models.families.reading import brief, read_tokens
from tests.models.families.tokenizers import real_tokenizer
from vivace.engine.output.grammar import Grammars
from vivace.engine.wire.frames import Grammar as Frame
from vivace.models import gguf_vocab
from vivace.models.families.base import Family, OutputSpec, Tool
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.mistral import Mistral
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import Qwen25
from vivace.models.tokenizer import GgufTokenizer

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (Tool("get", parameters=SCHEMA, is_strict=True), Tool("put", parameters=SCHEMA, is_strict=True))
AUTO, REQUIRED = OutputSpec(tools=TOOLS), OutputSpec(tools=TOOLS, choice="required")
QUICK = OutputSpec(tools=TOOLS, choice="required", effort="none")


class House:
    """A vocabulary as the engine sees it, and its grammars."""

    def __init__(self, tokenizer: GgufTokenizer, size: int) -> None:
        self.tokenizer = tokenizer
        info = SimpleNamespace(end_tokens=tokenizer.end_tokens, vocab_size=size)
        self.grammars = Grammars(SimpleNamespace(info=info, token_bytes=tokenizer.token_bytes))  # type: ignore[arg-type]

    def said(self, family: Family, spec: OutputSpec, text: str) -> Sequence[tuple[str, ...] | str]:
        """What is heard of a text whose markers are single tokens, each allowed by the grammar."""
        grammar = family.grammar(spec)
        assert grammar is not None
        constraint = self.grammars.compile(Frame(grammar.kind, grammar.text))
        spoken = gguf_vocab.tokenize(self.tokenizer._vocab, text.encode(), special=True)
        ends = [token for token in spoken if token in self.tokenizer.end_tokens]
        for place, token in enumerate(spoken):
            assert constraint.mask()[token], (
                f"{text!r} stops before {self.tokenizer.token_bytes(token)!r} at {place}"
            )
            if token not in ends:
                constraint.accept(token)
        assert constraint.is_complete
        log = family.answer([], spec)
        return brief(read_tokens(family.parser(spec, log), family, self.tokenizer, spoken))


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    path = tmp_path_factory.mktemp("chatml") / "v.gguf"
    controls, words = tokenizers.CHATML, tokenizers.QWEN_WORDS
    house = House(real_tokenizer(path, controls, words, end="<|im_end|>"), 258 + len(controls) + len(words))
    yield house
    house.grammars.close()


@pytest.fixture(scope="module")
def harmony(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    path: Path = tmp_path_factory.mktemp("harmony") / "v.gguf"
    house = House(real_tokenizer(path, tokenizers.HARMONY, end="<|return|>"), 258 + len(tokenizers.HARMONY))
    yield house
    house.grammars.close()


ONE = '{"name": "get", "arguments": {"city": "Oslo"}}'
TAGS = "<function=get>\n<parameter=city>\nOslo\n</parameter>\n</function>"
NEXT = "\n</tool_call>\n<tool_call>\n"
CALLED = ("get", '{"city": "Oslo"}')


def test_qwen_says_its_markers_as_tokens(chatml: House) -> None:
    """The opener and the closer of a call, where it must come and where it may."""
    qwen, coder = Qwen25(chatml.tokenizer), Qwen3Coder(chatml.tokenizer)
    assert chatml.said(qwen, REQUIRED, f"{ONE}{NEXT}{ONE}\n</tool_call><|im_end|>") == [CALLED, CALLED]
    assert chatml.said(qwen, AUTO, f"So\n<tool_call>\n{ONE}{NEXT}{ONE}\n</tool_call>") == [
        "So",
        CALLED,
        CALLED,
    ]
    assert chatml.said(coder, REQUIRED, f"{TAGS}{NEXT}{TAGS}\n</tool_call>") == [CALLED, CALLED]
    assert chatml.said(coder, AUTO, f"So\n\n<tool_call>\n{TAGS}\n</tool_call>") == ["So", CALLED]


def test_qwen3_ends_its_thoughts_with_a_token(chatml: House) -> None:
    """And then calls, under the same grammar."""
    family = Qwen3(chatml.tokenizer)
    text = f"Hm\n</think>\n\n<tool_call>\n{ONE}\n</tool_call>"
    assert chatml.said(family, REQUIRED, text) == [("mused", "Hm"), CALLED]
    assert chatml.said(family, AUTO, "Hm\n</think>\n\nNo.<|im_end|>") == [("mused", "Hm"), "No."]
    schema = OutputSpec(schema='{"type": "integer"}')
    assert chatml.said(family, schema, "Hm\n</think>\n\n7") == [("mused", "Hm"), "7"]
    assert chatml.said(family, QUICK, ONE) == [CALLED]


def test_gpt_oss_says_its_markers_as_tokens(harmony: House) -> None:
    """Through all messages of an answer, up to the token that ends it."""
    family = Harmony(harmony.tokenizer)
    thinking = "analysis<|message|>Hm<|end|><|start|>assistant<|channel|>"
    call = 'commentary to=functions.get <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
    assert harmony.said(family, REQUIRED, thinking + call) == [("mused", "Hm"), CALLED]
    assert harmony.said(family, AUTO, thinking + call) == [("mused", "Hm"), CALLED]
    assert harmony.said(family, AUTO, thinking + "final<|message|>No.<|return|>") == [("mused", "Hm"), "No."]
    schema = OutputSpec(schema='{"type": "integer"}')
    assert harmony.said(family, schema, thinking + "final<|message|>7<|return|>") == [("mused", "Hm"), "7"]
    assert harmony.said(family, QUICK, call.removeprefix("commentary to=")) == [CALLED]
    one = OutputSpec(tools=TOOLS[:1], choice="required", effort="none")
    assert harmony.said(family, one, '{"city": "Oslo"}<|call|>') == [CALLED]


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    path = tmp_path_factory.mktemp("mistral") / "v.gguf"
    house = House(real_tokenizer(path, tokenizers.MISTRAL, end="</s>"), 258 + len(tokenizers.MISTRAL))
    yield house
    house.grammars.close()


def test_mistral_is_held_to_a_call_that_is_begun_for_it(mistral: House) -> None:
    """The name and both marks are written; what the schema forbids is masked."""
    family = Mistral(mistral.tokenizer)
    one = OutputSpec(tools=TOOLS[:1], choice="required")
    assert mistral.said(family, one, '{"city": "Oslo"}</s>') == [CALLED]
    with pytest.raises(AssertionError, match="stops before"):
        mistral.said(family, one, '{"n": 1}</s>')
