"""Calls from two layers of a real model, under the grammars of its family: they always parse."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.desk import Desk
from tests.models.families.reading import brief, read_tokens
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.engine.wire.frames import Generate, Grammar, Open, Sampling
from vivace.models.families.base import Message, OutputSpec, Tool
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import SMOLLM_SYSTEM, Qwen25
from vivace.models.tokenizer import GgufTokenizer

WEATHER = Tool(
    "get_weather",
    "Gets the weather of a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["city", "unit", "days"],
        "additionalProperties": False,
    },
    is_strict=True,
)
DAYS = Tool(
    "get_days",
    "Gets the days of rain.",
    {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1, "maximum": 31},
                "maxItems": 3,
            },
        },
        "required": ["unit", "days"],
        "additionalProperties": False,
    },
    is_strict=True,
)
TURNS = itertools.count()
CODE = Tool("pick", "Picks a code.", is_custom=True, syntax="regex", definition="[a-z]{2,5}-[0-9]{3}")


@pytest.fixture(scope="module")
def desk(shallow: Path) -> Iterator[Desk]:
    runner = LlamaRunner(shallow, context_tokens=1024, threads=1)
    desk = Desk(runner)
    yield desk
    desk.engine.close()
    runner.close()


@pytest.fixture(scope="module")
def tokenizer(smol: Path) -> GgufTokenizer:
    return GgufTokenizer(smol)


class Talk:
    """One question to the model, as the server asks it."""

    def __init__(self, desk: Desk, family: Qwen25, tokenizer: GgufTokenizer) -> None:
        self._desk, self._family, self._tokenizer = desk, family, tokenizer

    def ask(self, spec: OutputSpec, seed: int) -> list[tuple[str, ...] | str]:
        turn = f"t{next(TURNS)}"
        family = self._family
        log = family.render([Message("user", "What is the weather in Oslo?")], tools=spec.tools)
        log += family.answer(log, spec)
        grammar = family.grammar(spec)
        self._desk.run(
            Open(turn),
            Generate(
                turn,
                turn,
                log,
                max_tokens=120,
                sampling=Sampling(temperature=1.2, seed=seed),
                stop_tokens=list(family.stop_tokens),
                grammar=Grammar(grammar.kind, grammar.text) if grammar else None,
            ),
        )
        assert self._desk.finished(turn).reason == "stop"
        spoken = self._desk.tokens(turn)
        return brief(read_tokens(family.parser(spec, log), family, self._tokenizer, spoken))


def is_weather(text: str) -> bool:
    value = json.loads(text)
    return (
        value.keys() == {"city", "unit", "days"}
        and len(value["city"]) <= 20
        and value["unit"] in ("celsius", "fahrenheit")
        and value["days"] in range(1, 15)
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_forced_call_of_a_real_model_fits_its_schema(
    desk: Desk, tokenizer: GgufTokenizer, seed: int
) -> None:
    """However odd its words: one call, known by name, whose arguments are what the schema allows."""
    spec = OutputSpec(tools=(WEATHER,), choice="required", is_parallel=False)
    family = Qwen25(tokenizer, default_system=SMOLLM_SYSTEM)
    ((name, arguments),) = Talk(desk, family, tokenizer).ask(spec, seed)
    assert name == "get_weather"
    assert is_weather(arguments)


@pytest.mark.parametrize("seed", range(3))
def test_a_forced_call_in_tags_fits_its_schema(desk: Desk, tokenizer: GgufTokenizer, seed: int) -> None:
    """The same for calls as Qwen3-Coder writes them."""
    spec = OutputSpec(tools=(DAYS,), choice="required", is_parallel=False)
    ((name, arguments),) = Talk(desk, Qwen3Coder(tokenizer), tokenizer).ask(spec, seed)
    value = json.loads(arguments)
    assert name == "get_days"
    assert value["unit"] in ("celsius", "fahrenheit")
    assert set(value["days"]) <= set(range(1, 32))


@pytest.mark.parametrize("seed", range(3))
def test_a_choice_of_forced_calls(desk: Desk, tokenizer: GgufTokenizer, seed: int) -> None:
    """Of several tools the model picks one, and a custom one gets text that its pattern matches."""
    spec = OutputSpec(tools=(WEATHER, CODE), choice="required", is_parallel=False)
    ((name, text),) = Talk(desk, Qwen25(tokenizer), tokenizer).ask(spec, seed)
    letters, _, digits = text.partition("-")
    assert is_weather(text) if name == "get_weather" else (letters.isalpha() and len(digits) == 3)


def test_a_schema_is_obeyed(desk: Desk, tokenizer: GgufTokenizer) -> None:
    """An answer under a schema is text that the schema allows."""
    (text,) = Talk(desk, Qwen25(tokenizer), tokenizer).ask(
        OutputSpec(schema=json.dumps(WEATHER.parameters)), seed=1
    )
    assert isinstance(text, str)
    assert is_weather(text)
