"""Qwen3: calls as in Qwen2.5, and reasoning between `<think>` and `</think>` before an answer.

Owns reasoning: whether a model reasons always, never or as the request says, and how an answer without it
begins. Reasoning that a client sends back is rendered where it was, as it stands in the log of a continued
response. Qwen's own template drops the reasoning of earlier turns; here that would throw away the KV of all
that follows.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from vivace.models.families.base import Grammar, OutputSpec, Parser
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.known_formats import HERMES
from vivace.models.families.calls.lark_grammar import grammar_of
from vivace.models.families.calls.reasoning import THINKING
from vivace.models.families.calls.text_parser import TextParser
from vivace.models.families.framing import MessageWriter, Pieces
from vivace.models.families.qwen25 import Qwen25
from vivace.models.families.token_writer import TemplateText
from vivace.models.tokenizer import Tokenizer

BEGIN_THINKING = TemplateText(THINKING.begun)
END_THINKING = TemplateText(THINKING.ended)
NO_THOUGHT = TemplateText(THINKING.skipped)
REASONING = (r"reasoning[lazy]: /(?s:.*)<\/think>/",)
Thinking = Literal["optional", "always", "never"]


class Qwen3(Qwen25):
    markers = HERMES.markers

    def __init__(
        self, tokenizer: Tokenizer, *, thinking: Thinking = "optional", default_system: str = ""
    ) -> None:
        super().__init__(tokenizer, default_system=default_system)
        self._thinking = thinking

    def thought(self, text: str) -> Pieces:
        return () if self._thinking == "never" else [BEGIN_THINKING, text, END_THINKING]

    def begun_answer(self) -> Pieces:
        return () if self._thinking == "never" else [NO_THOUGHT]

    def closing(self, text: str) -> Pieces:
        return [END_THINKING] if THINKING.is_open(text) else super().closing(text)

    def opening(self, spec: OutputSpec, before: str) -> Pieces:
        if before or self._thinking == "never":
            return () if THINKING.is_open(before) else super().opening(spec, before)
        if not self._thinks(spec):
            return [NO_THOUGHT, *super().opening(spec, before)]
        # Under a grammar the beginning is ours, so that it is the one token that the model knows.
        is_ours = self._thinking == "always" or self.grammar(spec) is not None
        return [BEGIN_THINKING] if is_ours else ()

    def end_thinking(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        before = self.unfinished_answer(log)
        if before is None or not self._thinks(spec):
            return []
        writer = MessageWriter(self, log)
        if THINKING.is_open(before):
            writer.append([END_THINKING])
        elif not before.strip():
            writer.append([NO_THOUGHT])
        return writer.tokens()

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        tags = THINKING if self._thinking != "never" else None
        style = msgspec.structs.replace(self.style, reasoning=tags)
        return TextParser(callable_tools(spec), style, before=self.unfinished_answer(log) or "")

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        return grammar_of(spec, self.form, reasoning=REASONING if self._thinks(spec) else ())

    def _thinks(self, spec: OutputSpec) -> bool:
        is_asked = spec.effort not in ("none", "minimal", "low")
        return self._thinking == "always" or (self._thinking == "optional" and is_asked)
