"""Grammars over two vocabularies: SmolLM2's, and bytes as tokens."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.engine.output.grammar import FORCED_TOKENS, Constraint, Grammars
from vivace.engine.output.sampler import Sampler
from vivace.engine.runners.base import Runner
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.engine.wire.frames import Grammar, Sampling
from vivace.errors import UsageError
from vivace.models.tokenizer import ByteTokenizer, GgufTokenizer, Tokenizer
from vivace.testing.scripted import Script, ScriptedRunner


class Place:
    """A vocabulary, its tokenizer, and grammars over it."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer) -> None:
        self.runner, self.tokenizer = runner, tokenizer
        self.grammars = Grammars(runner)

    def schema(self, schema: object) -> Constraint:
        return self.grammars.compile(Grammar("json_schema", json.dumps(schema)))

    def regex(self, pattern: str) -> Constraint:
        return self.grammars.compile(Grammar("regex", pattern))

    def text(self, tokens: list[int]) -> str:
        return b"".join(map(self.runner.token_bytes, tokens)).decode()

    def accepts(self, constraint: Constraint, text: str) -> bool:
        """Whether the text, as the model would write it, is allowed and may end there."""
        for token in self.tokenizer.encode(text):
            if not constraint.mask()[token]:
                return False
            constraint.accept(token)
        return constraint.is_complete


@pytest.fixture(scope="module")
def smol_place(smol: Path) -> Iterator[Place]:
    runner = LlamaRunner(smol, context_tokens=256, threads=1)
    place = Place(runner, GgufTokenizer(smol))
    yield place
    place.grammars.close()
    runner.close()


@pytest.fixture(scope="module")
def byte_place() -> Iterator[Place]:
    place = Place(ScriptedRunner(Script()), ByteTokenizer())
    yield place
    place.grammars.close()


@pytest.fixture(params=["smol", "bytes"])
def place(request: pytest.FixtureRequest) -> Place:
    name = "smol_place" if request.param == "smol" else "byte_place"
    return request.getfixturevalue(name)  # type: ignore[no-any-return]


def walk(place: Place, constraint: Constraint, seed: int, limit: int = 600) -> str:
    """What a model without any sense would write under the grammar, to its end."""
    noise, info = np.random.default_rng(seed), place.runner.info
    sampler, said = Sampler(Sampling(temperature=1.0, seed=seed), ()), []
    for position in range(limit):
        forced, mask = constraint.forced(), constraint.mask()
        assert all(mask[token] == constraint.is_complete for token in info.end_tokens)
        if forced:
            assert np.flatnonzero(mask).tolist() == forced[:1]
        token = sampler.sample(noise.normal(0, 3, info.vocab_size).astype(np.float32), position, mask)
        assert mask[token]
        constraint.accept(token)
        if token in info.end_tokens:
            return place.text(said)
        said.append(token)
    raise AssertionError(f"no end after {limit} tokens: {place.text(said)}")


# ---- what comes out ---------------------------------------------------------------------------------

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["human", "fox", None, 7]},
        "is_tall": {"type": "boolean"},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def is_person(value: object) -> bool:
    return (
        isinstance(value, dict)
        and {"name", "age", "kind"} <= value.keys() <= set(PERSON["properties"])  # type: ignore[arg-type, call-overload]
        and isinstance(value["name"], str)
        and len(value["name"]) <= 12
        and value["age"] in range(121)
        and value["kind"] in ["human", "fox", None, 7]
        and isinstance(value.get("is_tall", True), bool)
    )


SCHEMAS: list[tuple[object, Callable[[object], bool]]] = [
    (PERSON, is_person),
    (
        {
            "type": "array",
            "items": {"$ref": "#/$defs/p"},
            "minItems": 1,
            "maxItems": 3,
            "$defs": {"p": PERSON},
        },
        lambda v: isinstance(v, list) and 1 <= len(v) <= 3 and all(map(is_person, v)),
    ),
    (
        {
            "oneOf": [
                {"type": "null"},
                {"const": {"a": [1, "é☃"]}},
                {"type": "number", "minimum": -1, "maximum": 1},
                {"type": "integer", "minimum": 0, "maximum": 9},
            ]
        },
        lambda v: (
            v in (None, {"a": [1, "é☃"]}, *range(10)) or (isinstance(v, float) and -1 <= v <= 1) or v == -1
        ),
    ),
    (
        {"type": "string", "pattern": "^[a-z]{2,5}-[0-9]{3}$"},
        lambda v: isinstance(v, str) and re.fullmatch("[a-z]{2,5}-[0-9]{3}", v) is not None,
    ),
]


@pytest.mark.parametrize(("schema", "is_valid"), SCHEMAS)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_whatever_is_chosen_fits_the_schema(
    place: Place, schema: object, is_valid: Callable[[object], bool], seed: int
) -> None:
    """Tokens drawn at random under the mask always make JSON that the schema allows, and come to an end."""
    text = walk(place, place.schema(schema), seed)
    assert is_valid(json.loads(text)), text


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_regex_is_matched_whole(place: Place, seed: int) -> None:
    """Output under a regular expression matches all of it."""
    pattern = r"(ab|é|[0-9]{2,3}){1,4} ?[^a-y]z+.{0,3}"
    text = walk(place, place.regex(pattern.replace("z+", "z{1,9}")), seed)
    assert re.fullmatch(pattern, text), text


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_lark_grammar_is_obeyed(place: Place, seed: int) -> None:
    """Output under a context-free grammar can be parsed by it: here, Python can compute it."""
    rules = 'start: term ("+" term){0,3}\nterm: NUMBER | "(" NUMBER "*" NUMBER ")"\nNUMBER: /[1-9][0-9]{0,2}/'
    text = walk(place, place.grammars.compile(Grammar("lark", rules)), seed)
    assert re.fullmatch(r"[0-9+*()]+", text)
    assert eval(text) > 0


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ('{"a":[1,2],"b":"x"}', True),
        ('{"a": [1, 2], "b": "x"}', True),
        ('{\n  "a": [\n    1,\n    2\n  ],\n  "b": "x"\n}', True),
        ('{\n\t"a": [],\n\t"b": "x"\n}', True),
        ('{  "a": [], "b": "x"}', False),
        ('{\n\n"a": [], "b": "x"}', False),
        ('{"a": [],\n \n"b": "x"}', False),
        (' {"a": [], "b": "x"}', False),
    ],
)
def test_white_space_is_free_but_not_endless(byte_place: Place, text: str, is_allowed: bool) -> None:
    """JSON may be compact, spaced or indented; white space that leads nowhere is not allowed."""
    items = {"type": "array", "items": {"type": "integer"}}
    schema = {"properties": {"a": items, "b": {"type": "string"}}, "type": "object", "required": ["a", "b"]}
    assert byte_place.accepts(byte_place.schema(schema), text) == is_allowed


def test_a_schema_may_choose_its_own_white_space(byte_place: Place) -> None:
    """llguidance's own options inside a schema come before ours."""
    strict = {"whitespace_pattern": None, "whitespace_flexible": False, "item_separator": ", "}
    spaced = {"const": [1, 2], "x-guidance": strict}
    tabbed = {"const": [1, 2], "x-guidance": {"whitespace_pattern": r"\t"}}
    for text, schema, is_allowed in (
        ("[1, 2]", spaced, True),
        ("[1,2]", spaced, False),
        ("[ 1, 2]", spaced, False),
        ("[1,\t2]", tabbed, True),
        ("[1, 2]", tabbed, False),
    ):
        assert byte_place.accepts(byte_place.schema(schema), text) == is_allowed, text


def test_a_schema_that_is_true_allows_any_json(byte_place: Place) -> None:
    """The schemas `true` and `{}` allow every value."""
    for text in ("true", "{}", " true\n"):
        constraint = byte_place.grammars.compile(Grammar("json_schema", text))
        assert byte_place.accepts(constraint, '[{"a": null}, 1.5e3]')


# ---- the end -----------------------------------------------------------------------------------------


def test_the_output_ends_exactly_where_the_grammar_may(place: Place) -> None:
    """End tokens are refused before the end, allowed where more may follow, and all that is left after it."""
    constraint, ends = place.regex("ab?c?"), sorted(place.runner.info.end_tokens)
    states = []
    for letter in "abc":
        states.append((constraint.is_complete, bool(constraint.mask()[ends].all())))
        constraint.accept(*place.tokenizer.encode(letter))
    assert states == [(False, False), (True, True), (True, True)]
    assert constraint.is_stopped
    assert np.flatnonzero(constraint.mask()).tolist() == ends
    assert constraint.forced() == []
    for end in ends:
        ended = place.regex("a")
        ended.accept(*place.tokenizer.encode("a"))
        ended.accept(end)
        assert ended.is_complete


def test_a_token_that_is_not_allowed_cannot_be_accepted(place: Place) -> None:
    """To accept what the mask forbids is an error, and so is all that follows."""
    constraint = place.regex("[0-9]+")
    with pytest.raises(UsageError):
        constraint.accept(place.tokenizer.encode("x")[0])
    with pytest.raises(UsageError):
        constraint.mask()


def test_control_tokens_are_never_allowed(smol_place: Place, byte_place: Place) -> None:
    """Under a grammar that allows any text no control token may come, and one that asks for it is refused."""
    for place, control in ((smol_place, 1), (byte_place, 256)):
        assert place.runner.token_bytes(control) == b""
        assert not place.regex("(.|\n)*").mask()[control]
        with pytest.raises(UsageError, match="control token"):
            place.grammars.compile(Grammar("lark", f"start: <[{control}]>")).mask()


# ---- drafts ------------------------------------------------------------------------------------------


def test_forced_text_is_tokenized_as_the_model_would(smol_place: Place) -> None:
    """Text with only one way to go on is drafted in the model's own tokens, nearly to its end."""
    text = "def rewrite_all_functions(self, path: str) -> list[Function]:\n    return 42 # naïve"
    constraint = smol_place.regex(re.escape(text) + "(!|[?])")
    expected = smol_place.tokenizer.encode(text)
    forced = constraint.forced()
    assert len(forced) >= len(expected) - 2
    assert forced == expected[: len(forced)]


def test_forced_tokens_are_what_the_masks_allow(place: Place) -> None:
    """A draft of forced tokens is accepted to its end, each being the only one allowed at its place."""
    constraint = place.schema({"const": ["a long value that must be said", {"and": "this: " + "no " * 20}]})
    for _ in range(200):
        draft = constraint.forced()
        assert len(draft) <= FORCED_TOKENS
        assert constraint.keep(draft) == draft
        for token in draft:
            assert np.flatnonzero(constraint.mask()).tolist() == [token]
            constraint.accept(token)
        if constraint.is_stopped:
            return
        constraint.accept(int(np.flatnonzero(constraint.mask())[-1]))  # no white space
    raise AssertionError("no end")


def test_a_draft_is_kept_as_far_as_it_fits(place: Place) -> None:
    """Of a draft, the tokens before the first that the grammar forbids are kept, and nothing else changes."""
    constraint = place.regex("[a-c]+ [0-9]+")
    draft = place.tokenizer.encode("abc 12x3")
    kept = place.text(constraint.keep(draft))
    assert "abc 12".startswith(kept)
    assert len(kept) >= 3
    assert constraint.keep(place.tokenizer.encode("xyz")) == constraint.keep([]) == []
    assert place.accepts(constraint, "cab 7")


def test_a_draft_may_hold_the_end(place: Place) -> None:
    """An end token in a draft is kept where the grammar may end, and nowhere else."""
    end = min(place.runner.info.end_tokens)
    a = place.tokenizer.encode("a")
    constraint = place.regex("a+b?")
    assert constraint.keep([*a, end]) == [*a, end]
    assert constraint.keep([end, *a]) == []


# ---- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("json_schema", '{"not": {"type": "string"}}', 'Unimplemented keys: ["not"]'),
        ("json_schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ("json_schema", '{"type": "strin"}', "strin"),
        ("json_schema", '{"type": "string", "pattern": "(a"}', "unclosed group"),
        ("json_schema", '{"type": "string",', "EOF while parsing"),
        ("json_schema", "false", "object schema"),
        ("regex", "a(b", "unclosed group"),
        ("regex", "(a)\\1", "backreferences are not supported"),
        ("regex", "[^\\s\\S]", "nothing matches it"),
        ("lark", "start: b", 'unknown name: "b"'),
        ("lark", 'rule: "a"', "no start rule"),
        ("lark", '{"grammars": []}', "expecting rule"),
    ],
)
def test_a_wrong_grammar_is_refused_in_one_line(byte_place: Place, kind: str, text: str, says: str) -> None:
    """What is wrong with a grammar is said in one readable line."""
    with pytest.raises(UsageError) as refused:
        byte_place.grammars.compile(Grammar(kind, text))  # type: ignore[arg-type]
    assert says in refused.value.message
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 260


def test_a_grammar_that_grows_too_large_ends_its_own_turn(smol_place: Place) -> None:
    """Where a grammar exceeds its limits in the middle of the output, its turn gets an error and no other."""
    rules = "start: T\nT: ~/(.*a.{20}|.*b.{20})/ & /.{5,1000}/"
    greedy, modest = smol_place.grammars.compile(Grammar("lark", rules)), smol_place.schema(PERSON)
    with pytest.raises(UsageError, match="too many"):
        walk(smol_place, greedy, seed=1)
    with pytest.raises(UsageError, match="too many"):
        greedy.mask()
    assert is_person(json.loads(walk(smol_place, modest, seed=1)))


# ---- the life of it ----------------------------------------------------------------------------------


def test_grammars_may_be_compiled_from_several_threads(byte_place: Place) -> None:
    """Threads that compile at the same time all get what they asked for."""
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: walk(byte_place, byte_place.regex(f"x{n}"), n), range(20)))
    assert found == [f"x{n}" for n in range(20)]


def test_an_engine_without_grammars_pays_nothing() -> None:
    """Until the first grammar, llguidance is not even imported."""
    code = "import sys, vivace.engine.loop.engine; print('llguidance' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False"


def test_closing_ends_the_process_that_checks(byte_place: Place) -> None:
    """Once closed, or forgotten, no process is left; and a closed one may be used again."""
    for end in ("close", "forget", "close and use"):
        grammars = Grammars(byte_place.runner)
        grammars.compile(Grammar("regex", "a"))
        process = grammars._checker._process
        assert process is not None
        assert process.poll() is None
        if end == "forget":
            del grammars
        else:
            grammars.close()
        assert process.poll() is not None
        if end == "close and use":
            assert grammars.compile(Grammar("regex", "a")).mask().any()
            grammars.close()
