"""Qwen2.5 and Qwen2.5-Coder, SmolLM2, and any other model that speaks ChatML: tools as Hermes had them.

Owns how tools are announced (JSON in the system message), called (`<tool_call>` around a JSON object) and
answered (`<tool_response>` in a user message). Small models often call with the bare object, or with one in
a code fence, and nothing else: that counts too.
"""

from collections.abc import Mapping, Sequence

from vivace.models.families.base import Call, Grammar, Output, OutputSpec, Parser, Tool
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.definitions import definition
from vivace.models.families.calls.json_call import INPUT, to_json
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.calls.known_formats import CLOSE, HERMES, OPEN
from vivace.models.families.calls.lark_grammar import Form, grammar_of
from vivace.models.families.calls.text_parser import Style, TextParser
from vivace.models.families.chatml import ChatML
from vivace.models.families.framing import Pieces
from vivace.models.families.token_writer import TemplateText
from vivace.models.tokenizer import Tokenizer

QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
SMOLLM_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHANGED = TemplateText("The tools have changed. From now on there are only these.\n\n")
# Qwen2.5-Coder's own template has two braces around the example, and the model then writes two. This is how
# Qwen2.5 and Qwen3 have it.
_TOOLS_BEGIN = TemplateText(
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_END = TemplateText(
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
    "<args-json-object>}\n</tool_call>"
)


class Qwen25(ChatML):
    markers: tuple[str, ...] = (OPEN, CLOSE)
    style: Style = HERMES.style
    form: Form | None = HERMES.form

    def __init__(self, tokenizer: Tokenizer, *, default_system: str = "") -> None:
        super().__init__(tokenizer)
        self._default_system = default_system

    # ---- what is written --------------------------------------------------------------------------

    def system(self, text: str | None, tools: Sequence[Tool], *, is_first: bool) -> Pieces:
        head: list[str] = [] if text is None else [text]
        if text is None and is_first and self._default_system:
            head = [TemplateText(self._default_system)]
        if not tools:
            return head
        gap = [TemplateText("\n\n")] if head else []
        return [*head, *gap, *([] if is_first else [CHANGED]), *self.tools(tools)]

    def tools(self, tools: Sequence[Tool]) -> Pieces:
        return tools_told(tools)

    def call(self, call: Call, *, behind: str) -> Pieces:
        glue = "\n" if behind else ""
        name, arguments = to_json(call.name), json_arguments(call)
        return [
            TemplateText(f'{glue}{OPEN}\n{{"name": '),
            name,
            TemplateText(', "arguments": '),
            arguments,
            TemplateText(f"}}\n{CLOSE}"),
        ]

    def output(self, output: Output, *, is_first: bool) -> Pieces:
        glue = "" if is_first else "\n"
        return [TemplateText(f"{glue}<tool_response>\n"), output.text, TemplateText("\n</tool_response>")]

    def is_output(self, tokens: Sequence[int], text: str) -> bool:
        return text.startswith("<tool_response>") or any(token in self.controls for token in tokens)

    def closing(self, text: str) -> Pieces:
        return [TemplateText(f"\n{CLOSE}")] if text.rfind(OPEN) > text.rfind(CLOSE) else []

    # ---- what the model says ----------------------------------------------------------------------

    def opening(self, spec: OutputSpec, before: str) -> Pieces:
        if spec.choice != "required" or not spec.tools or before.rfind(OPEN) > before.rfind(CLOSE):
            return ()
        glue = "\n" if before.strip() else ""
        return [TemplateText(f"{glue}{HERMES.opening}")]

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        return TextParser(callable_tools(spec), self.style, before=self.unfinished_answer(log) or "")

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        return grammar_of(spec, self.form)


def tools_told(tools: Sequence[Tool]) -> Pieces:
    """Return how tools are told of where a template does not say it itself."""
    lines = [piece for tool in tools for piece in (TemplateText("\n"), to_json(definition(tool)))]
    return [_TOOLS_BEGIN, *lines, _TOOLS_END]


def json_arguments(call: Call) -> str:
    """Return a call's arguments as a JSON value. What is not a JSON object becomes a string."""
    if call.is_custom:
        return to_json({INPUT: call.arguments})
    text = call.arguments.strip() or "{}"
    return text if isinstance(decoded(text), Mapping) else to_json(call.arguments)
