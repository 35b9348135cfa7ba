"""Qwen3: calls as Qwen2.5 has them, and reasoning between `<think>` and `</think>` before an answer.

Owns reasoning: whether a model thinks always, never or as wished, and what an answer without it begins
with. Reasoning that a client sends back is shown where it was, just as it stands in the log of whoever goes
on from a response. Qwen's own template drops that of earlier turns; here that would throw away the KV of
all that follows.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from vivace.models.families.base import Grammar, OutputSpec, Parser
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.lark_grammar import Form, grammar_of
from vivace.models.families.calls.text_parser import THINK, THOUGHT, Style, TextParser
from vivace.models.families.framing import Pieces
from vivace.models.families.qwen25 import CLOSE, FORM, OPEN, STYLE, Qwen25
from vivace.models.families.wording import TemplateText
from vivace.models.tokenizer import Tokenizer

BEGIN_THINKING = TemplateText(f"{THINK}\n")
END_THINKING = TemplateText(f"\n{THOUGHT}\n\n")
NO_THOUGHT = TemplateText(f"{THINK}\n\n{THOUGHT}\n\n")
REASONING = (r"reasoning[lazy]: /(?s:.*)<\/think>/",)
Thinking = Literal["wished", "always", "never"]


class Qwen3(Qwen25):
    markers = (OPEN, CLOSE, THINK, THOUGHT, "<tool_response>", "</tool_response>")
    style: Style = STYLE
    form: Form = FORM

    def __init__(
        self, tokenizer: Tokenizer, *, thinking: Thinking = "wished", default_system: str = ""
    ) -> None:
        super().__init__(tokenizer, default_system=default_system)
        self._thinking = thinking

    def thought(self, text: str) -> Pieces:
        return () if self._thinking == "never" else [BEGIN_THINKING, text, END_THINKING]

    def begun_answer(self) -> Pieces:
        return () if self._thinking == "never" else [NO_THOUGHT]

    def closing(self, text: str) -> Pieces:
        return [END_THINKING] if text.rfind(THINK) > text.rfind(THOUGHT) else super().closing(text)

    def opening(self, wish: OutputSpec, before: str) -> Pieces:
        if before or self._thinking == "never":
            return () if before.rfind(THINK) > before.rfind(THOUGHT) else super().opening(wish, before)
        if not self._thinks(wish):
            return [NO_THOUGHT, *super().opening(wish, before)]
        # Under a grammar the beginning is ours, so that it is the one token that the model knows.
        is_ours = self._thinking == "always" or self.grammar(wish) is not None
        return [BEGIN_THINKING] if is_ours else ()

    def parser(self, wish: OutputSpec, log: Sequence[int]) -> Parser:
        style = msgspec.structs.replace(self.style, has_reasoning=self._thinking != "never")
        return TextParser(callable_tools(wish), style, before=self.said_in(log) or "")

    def grammar(self, wish: OutputSpec) -> Grammar | None:
        return grammar_of(wish, self.form, reasoning=REASONING if self._thinks(wish) else ())

    def _thinks(self, wish: OutputSpec) -> bool:
        is_wished = wish.effort not in ("none", "minimal", "low")
        return self._thinking == "always" or (self._thinking == "wished" and is_wished)
