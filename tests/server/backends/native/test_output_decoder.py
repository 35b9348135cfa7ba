"""The shortcut of plain text: whatever a model says, it comes as without the shortcut."""

import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.families import tokenizers
from tests.models.families.reading import SPEC
from tests.models.families.tokenizers import NamedTokenizer
from tests.server.backends.native.test_outbox import joined
from vivace.engine.wire.frames import PositionLogprobs, TokenLogprob
from vivace.models.families.base import Family, OutputSpec
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import Qwen25
from vivace.protocol.shapes.outcomes import Outcome, TextDelta
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native.output_decoder import OutputDecoder, TokenTexts
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.backends.native.turn_prompt import TurnPrompt
from vivace.server.caller import Caller
from vivace.server.conversation.token_log import LogContents, Session

WORDS = ("hello ", "a < b", "\n\n", "é", "<", "\n", '{"name": "get", "arguments": {', "}", "} ", "x", " ")
CHATML = NamedTokenizer(tokenizers.CHATML, [*tokenizers.QWEN_WORDS, *WORDS], ends=["<|im_end|>"])
LLAMA = NamedTokenizer(tokenizers.LLAMA, WORDS, ends=["<|eot_id|>"])
HARMONY = NamedTokenizer(tokenizers.HARMONY, [*WORDS, "final", "analysis"], ends=["<|return|>"])
FAMILIES: dict[str, tuple[Family, NamedTokenizer]] = {
    "qwen25": (Qwen25(CHATML), CHATML),
    "qwen3": (Qwen3(CHATML, thinking="optional"), CHATML),
    "qwen3coder": (Qwen3Coder(CHATML, thinking="optional"), CHATML),
    "llama3": (Llama3(LLAMA), LLAMA),
    "harmony": (Harmony(HARMONY), HARMONY),
}
PHRASES = [
    '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>', "</tool_call> x", "<think>\nx",
    '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call> x', "</think>\n\nhello ", "```json\n{",
    '<tool_call>\n{"name": "get", "arguments": {}} no', "<function=get>\n</function>\n", "\n\nhello ",
    '<|python_tag|>{"name": "get", "parameters": {}}', '{"name": "get", "arguments": {}}', "aé\n<{",
    "<|channel|>final<|message|>hello ", "<|channel|>analysis<|message|>x", "<|end|>", "<|start|>assistant",
    "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>hello é",
]  # fmt: skip
STOPS = st.sampled_from([[], ["\n"], ["b", "hello a"], ["```"]])


class WholeWay(OutputDecoder):
    """A decoder without the shortcut."""

    def decode_plain(self, _: Sequence[int]) -> None:
        return None


class Said:
    """A turn, and all that it puts out."""

    def __init__(self, decoder: type[OutputDecoder], name: str, spec: OutputSpec, stops: list[str]) -> None:
        family, tokenizer = FAMILIES[name]
        self.outcomes: list[Outcome] = []
        self.turn = NativeTurn("resp_1", ResponseCreate(), "m", Caller(), None)
        session = Session([1, 2])
        texts = TokenTexts(family, tokenizer)
        parser = family.parser(spec, session.log)
        self.decoder = decoder(family, tokenizer, texts, parser, stops, is_held=False)
        self.turn.work_in(session, follows=False)
        self.turn.take_prompt(TurnPrompt(2, LogContents(), 0.0, decoder=self.decoder), 2)
        self.turn.outcomes(self._take)

    def _take(self, outcome: Outcome) -> bool:
        self.outcomes.append(outcome)
        return True

    @property
    def state(self) -> tuple[object, ...]:
        turn, decoder = self.turn, self.decoder
        assert turn.session is not None
        log = turn.session.log.since(0)
        marks = (turn.whole_length, turn._said_length, turn._item, turn.output_tokens)
        return (
            joined(self.outcomes),
            log,
            marks,
            decoder.reasoning_tokens,
            decoder.is_stopped,
            decoder.is_in_call,
        )


def spoken(family: str, pieces: Sequence[str | int]) -> list[int]:
    """Tokens of this family's vocabulary: of a phrase with its control tokens, or the one with a number."""
    tokenizer = FAMILIES[family][1]
    tokens: list[int] = []
    for piece in pieces:
        if isinstance(piece, int):
            tokens.append(256 + piece % len(tokenizer.names))
        else:
            for part in re.split(r"(<\|\w+\|>)", piece):
                is_control = part in tokenizer.names
                tokens += [tokenizer.control(part)] if is_control else tokenizer.encode(part)
    return tokens


@pytest.mark.parametrize("family", FAMILIES)
@given(
    pieces=st.lists(st.sampled_from(PHRASES) | st.integers(0, 30) | st.sampled_from("é<a"), max_size=9),
    chance=st.randoms(),
    stops=STOPS,
    has_tools=st.booleans(),
    with_logprobs=st.sets(st.integers(0, 8), max_size=2),
)
def test_text_by_the_shortcut_is_what_it_is_without(
    family: str,
    pieces: list[str | int],
    chance: Random,
    stops: list[str],
    has_tools: bool,
    with_logprobs: set[int],
) -> None:
    """In frames of any size: the same outcomes, lengths and counts after each frame as token by token."""
    tokens, spec = spoken(family, pieces), SPEC if has_tools else OutputSpec()
    short, whole = Said(OutputDecoder, family, spec, stops), Said(WholeWay, family, spec, stops)
    edges = sorted({0, len(tokens), *chance.choices(range(len(tokens) + 1), k=len(tokens) // 2)})
    for number, (start, end) in enumerate(pairwise(edges)):
        frame = tokens[start:end]
        chances = [PositionLogprobs(TokenLogprob(token, -1.0)) for token in frame]
        logprobs = chances if number in with_logprobs else []
        short.turn.add_tokens(frame, logprobs)
        for index, token in enumerate(frame):
            whole.turn.add_tokens([token], logprobs[index : index + 1])
        assert short.state == whole.state
    assert short.turn.finish("stop") == whole.turn.finish("stop")


def test_nearly_all_text_takes_the_shortcut() -> None:
    """Once text has begun, each word of it is plain, and what may begin a call is not."""
    said = Said(OutputDecoder, "qwen25", SPEC, [])
    word, space = CHATML.control("hello "), CHATML.control(" ")
    assert said.decoder.decode_plain([word]) is None  # the answer may be a call as a whole
    said.turn.add_tokens([word], [])
    assert said.decoder.decode_plain([word, space, word]) == TextDelta("hello  hello ")
    assert said.decoder.decode_plain([word, CHATML.control("<")]) is None
    assert said.decoder.decode_plain([CHATML.control("<tool_call>")]) is None
