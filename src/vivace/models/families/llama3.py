"""Llama 3.1 and later: a header before each message, calls as one JSON object that is the whole answer.

Owns the frame's tokens, and how tools are announced, called and answered. Tools stand in the system message,
where Meta's template can put them too, and not in the first user message, which comes too late to be
prefilled. The date is the template's own: one that changes would throw the KV of every log away at
midnight.
"""

import json
from collections.abc import Sequence

from vivace.models.families.base import Call, Grammar, Output, OutputSpec, Parser, Tool
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.definitions import definition
from vivace.models.families.calls.json_call import to_json
from vivace.models.families.calls.known_formats import LLAMA
from vivace.models.families.calls.lark_grammar import grammar_of
from vivace.models.families.calls.text_parser import TextParser
from vivace.models.families.framing import FramedFamily, OpenMessage, Pieces
from vivace.models.families.qwen25 import CHANGED, json_arguments
from vivace.models.families.token_writer import TemplateText, TokenWriter, silent_markers
from vivace.models.tokenizer import Tokenizer

BEGIN, HEAD, END_HEAD = "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"
END, END_CALL = "<|eot_id|>", "<|eom_id|>"
_ENVIRONMENT = TemplateText("Environment: ipython\n")
_DATES = TemplateText("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n")
_TOOLS = TemplateText(
    "You have access to the following functions. To call a function, please respond with JSON for a function "
    "call."
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)


class Llama3(FramedFamily):
    markers = LLAMA.markers
    output_role = "ipython"
    has_outputs_together = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        ends = tuple(silent_markers(tokenizer, (END_CALL,)))
        super().__init__(tokenizer, start=tokenizer.control(HEAD), end=tokenizer.control(END), ends=ends)
        self._begin, self._end_head = tokenizer.control(BEGIN), tokenizer.control(END_HEAD)

    # ---- what is written --------------------------------------------------------------------------

    def head(self, out: TokenWriter, role: str, *, is_first: bool) -> None:
        if is_first:
            out.control(self._begin)
        out.control(self.start)
        out.text(TemplateText(role))
        out.control(self._end_head)
        out.text(TemplateText("\n\n"))

    def split(self, tokens: Sequence[int]) -> OpenMessage:
        place = tokens.index(self._end_head) if self._end_head in tokens else len(tokens)
        return OpenMessage(self.text(tokens[:place]), self.text(tokens[place + 1 :]).removeprefix("\n\n"))

    def system(self, text: str | None, tools: Sequence[Tool], *, is_first: bool) -> Pieces:
        given = [] if text is None else [text]
        tool_texts = self._tools(tools)
        if not is_first:
            return [*given, TemplateText("\n\n" if given else ""), CHANGED, *tool_texts]
        return [*([_ENVIRONMENT] if tools else []), _DATES, *tool_texts, *given]

    def _tools(self, tools: Sequence[Tool]) -> Pieces:
        each = [json.dumps(definition(tool), ensure_ascii=False, indent=4) + "\n\n" for tool in tools]
        return [_TOOLS, *each] if tools else []

    def call(self, call: Call, *, behind: str) -> Pieces:
        glue = {"text": "\n", "call": "; "}.get(behind, "")
        name, arguments = to_json(call.name), json_arguments(call)
        return [
            TemplateText(f'{glue}{{"name": '),
            name,
            TemplateText(', "parameters": '),
            arguments,
            TemplateText("}"),
        ]

    def output(self, output: Output, *, is_first: bool) -> Pieces:  # noqa: ARG002
        return [output.text]

    # ---- what the model says ----------------------------------------------------------------------

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        return TextParser(callable_tools(spec), LLAMA.style, before=self.unfinished_answer(log) or "")

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        return grammar_of(spec, LLAMA.form)
