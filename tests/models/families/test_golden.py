"""What families write, against what the models' own chat templates write.

The texts in `families/golden` were made once with the official templates. For Qwen2.5 the example of a call
has one brace where Qwen2.5-Coder's template has two; for Llama 3 tools are in the system message. Those of
Mistral were made with mistral-common 1.13.0 (`InstructTokenizerV13`), which its models are trained with. Real
tokenizers must give the same tokens as those texts with their control tokens parsed.
"""

from pathlib import Path

import pytest

from tests.models.families import conversation as talk
from tests.models.families import tokenizers
from tests.models.families.tokenizers import NamedTokenizer
from vivace.config import load_settings
from vivace.models import gguf_vocab
from vivace.models.catalog import QWEN
from vivace.models.families.base import Entry, Family, Message, OutputSpec, Thought, Tool
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.mistral import Mistral
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import QWEN_SYSTEM, SMOLLM_SYSTEM, Qwen25
from vivace.models.store import card_path, is_complete
from vivace.models.tokenizer import GgufTokenizer

GOLDEN = Path(__file__).parent / "golden"
PLAIN: list[Entry] = [*talk.BEGIN, *talk.ANSWERED, *talk.ASKED]
BARE: list[Entry] = talk.BEGIN[1:]
THOUGHT: list[Entry] = [*talk.BEGIN, Thought("Let me see.\nWeather."), talk.FIRST_CALL, talk.OUTPUTS[0]]


def prompt(
    family: Family, entries: list[Entry], tools: tuple[Tool, ...] = (), spec: OutputSpec | None = None
) -> list[int]:
    log = family.render(entries, tools=tools)
    return log + family.answer(log, spec or OutputSpec())


def family_of(name: str) -> tuple[NamedTokenizer, Family]:
    chatml = tokenizers.chatml()
    match name:
        case "qwen25":
            return chatml, Qwen25(chatml, default_system=QWEN_SYSTEM)
        case "smollm2":
            return chatml, Qwen25(chatml, default_system=SMOLLM_SYSTEM)
        case "qwen3":
            return chatml, Qwen3(chatml)
        case "qwen3coder":
            return chatml, Qwen3Coder(chatml)
        case "mistral":
            mistral = tokenizers.mistral()
            return mistral, Mistral(mistral)
    llama = tokenizers.llama()
    return llama, Llama3(llama)


@pytest.mark.parametrize(
    ("golden", "entries", "tools", "spec"),
    [
        *(
            (f"{name}-tools", talk.WHOLE, talk.TOOLS, OutputSpec())
            for name in ("qwen25", "qwen3", "qwen3coder", "mistral")
        ),
        *(
            (f"{name}-no-system", BARE, talk.TOOLS, OutputSpec())
            for name in ("qwen25", "qwen3", "qwen3coder", "mistral")
        ),
        *(
            (f"{name}-{kind}", entries, (), OutputSpec())
            for name in ("qwen25", "smollm2", "qwen3", "qwen3coder", "llama3", "mistral")
            for kind, entries in (("plain", PLAIN), ("bare", BARE))
        ),
        ("qwen3-no-thinking", talk.BEGIN, (), OutputSpec(effort="low")),
        ("qwen3-thought", THOUGHT, talk.TOOLS, OutputSpec()),
        ("llama3-tools", [*talk.BEGIN, talk.FIRST_CALL], talk.TOOLS, OutputSpec()),
    ],
)
def test_a_conversation_is_written_as_the_template_writes_it(
    golden: str, entries: list[Entry], tools: tuple[Tool, ...], spec: OutputSpec
) -> None:
    """Messages, tools, calls and outputs, up to where the model speaks, letter by letter."""
    tokenizer, family = family_of(golden.partition("-")[0])
    assert tokenizer.shown(prompt(family, entries, tools, spec)) == (GOLDEN / f"{golden}.txt").read_text()


@pytest.fixture(scope="module")
def qwen() -> Path:
    settings = load_settings()
    if not is_complete(settings, QWEN):
        pytest.skip("the default model is not on this machine")
    return card_path(settings, QWEN)


def special_tokens(tokenizer: GgufTokenizer, text: str) -> list[int]:
    """Tokens of a text with the names of control tokens in it."""
    return gguf_vocab.tokenize(tokenizer._vocab, text.encode(), special=True)


@pytest.mark.parametrize(
    ("golden", "entries", "tools"),
    [
        ("tools", talk.WHOLE, talk.TOOLS),
        ("no-system", BARE, talk.TOOLS),
        ("plain", PLAIN, ()),
        ("bare", BARE, ()),
    ],
)
def test_qwen_gets_the_tokens_of_its_own_template(
    qwen: Path, golden: str, entries: list[Entry], tools: tuple[Tool, ...]
) -> None:
    """With the real tokenizer of Qwen2.5-Coder: `<tool_call>` is the one token that it has for it."""
    tokenizer = GgufTokenizer(qwen)
    family = Qwen25(tokenizer, default_system=QWEN_SYSTEM)
    expected = special_tokens(tokenizer, (GOLDEN / f"qwen25-{golden}.txt").read_text())
    assert prompt(family, entries, tools) == expected


@pytest.mark.parametrize(
    ("golden", "entries", "tools"),
    [("tools", talk.WHOLE, talk.TOOLS), ("no-system", BARE, talk.TOOLS), ("plain", PLAIN, ())],
)
def test_mistral_gets_the_tokens_of_its_own_template(
    tmp_path: Path, golden: str, entries: list[Entry], tools: tuple[Tool, ...]
) -> None:
    """With llama.cpp's tokenizer: each mark is the one control token that it has for it."""
    tokenizer = tokenizers.real_tokenizer(tmp_path / "v.gguf", tokenizers.MISTRAL, end="</s>")
    expected = special_tokens(tokenizer, (GOLDEN / f"mistral-{golden}.txt").read_text())
    assert prompt(Mistral(tokenizer), entries, tools) == expected


@pytest.mark.parametrize(("golden", "entries"), [("plain", PLAIN), ("bare", BARE)])
def test_smollm_gets_the_tokens_of_its_own_template(smol: Path, golden: str, entries: list[Entry]) -> None:
    """With the real tokenizer of SmolLM2."""
    tokenizer = GgufTokenizer(smol)
    family = Qwen25(tokenizer, default_system=SMOLLM_SYSTEM)
    expected = special_tokens(tokenizer, (GOLDEN / f"smollm2-{golden}.txt").read_text())
    assert prompt(family, entries) == expected


@pytest.mark.parametrize("text", ["Hi", "\n\n  Hi\n", " ", "{\n"])
def test_an_answer_in_history_has_the_tokens_that_it_was_said_in(smol: Path, text: str) -> None:
    """Its words are encoded apart from what stands before them, as when the model said them."""
    tokenizer = GgufTokenizer(smol)
    family = Qwen25(tokenizer)
    log = family.render(BARE)
    log += family.answer(log, OutputSpec()) + tokenizer.encode(text) + [family.end]
    assert family.render([*BARE, Message("assistant", text)]) == log


HARMONY_GOLDEN = """\
<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06

Reasoning: high

# Valid channels: analysis, commentary, final. Channel must be included for every message.
Calls to these tools must go to the commentary channel: 'functions'.<|end|>\
<|start|>developer<|message|># Instructions

Be brief.

# Tools

## functions

namespace functions {

// Gets the weather of a city.
type get_weather = (_: {
// The city and its country.
city: string,
unit?: "celsius" | "fahrenheit", // default: celsius
days?: number[],
}) => any;

// Finds <files> with “words”.
type search = (_: {
words: string,
is_exact: boolean,
}) => any;

type now = () => any;

// Changes files.
//
// The input must match this lark grammar:
// start: "x"+
type apply_patch = (FREEFORM) => any;

} // namespace functions<|end|>\
<|start|>user<|message|>What is the weather in Genève,
and who knows?<|end|>\
<|start|>assistant<|channel|>analysis<|message|>Look.<|end|>\
<|start|>assistant<|channel|>commentary<|message|>I will look.<|end|>\
<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>\
{"city": "Genève", "days": [1, 2]}<|call|>\
<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>\
{"words": "a \\"b\\"", "is_exact": true}<|call|>\
<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>22 degrees
<|end|>\
<|start|>functions.search to=assistant<|channel|>commentary<|message|>nobody<|end|>\
<|start|>assistant<|channel|>final<|message|>22 degrees. Nobody.<|return|>\
<|start|>user<|message|>Thanks<|end|>\
<|start|>developer<|message|># Instructions

Now in French.<|end|>\
<|start|>assistant""".replace("//\n", "// \n")


def test_a_conversation_is_written_in_harmony() -> None:
    """Channels, recipients, TypeScript-like tools and the effort, as OpenAI's renderer has them."""
    tokenizer = tokenizers.harmony()
    family = Harmony(tokenizer)
    tools = (*talk.TOOLS, Tool("now"), talk.PATCH)
    entries: list[Entry] = [
        *talk.BEGIN, Thought("Look."), *talk.CALLING, *talk.OUTPUTS, *talk.ANSWERED, *talk.ASKED,
        Message("system", "Now in French."),
    ]  # fmt: skip
    log = family.render(entries, tools=tools, effort="xhigh")
    assert tokenizer.shown(log + family.answer(log, OutputSpec(effort="high"))) == HARMONY_GOLDEN
