"""Mistral's format since tokenizer version 13 (Devstral): control tokens around everything but answers.

Owns the frames (`[INST]…[/INST]` and the like; an answer has only its end, `</s>`), and how tools are
announced, called (`[TOOL_CALLS]NAME[ARGS]{…}`) and answered. Earlier versions write calls differently, and
are not spoken.
"""

from collections.abc import Sequence

from vivace.models.families.base import (
    Call,
    Effort,
    Entry,
    Grammar,
    Message,
    Output,
    OutputSpec,
    Parser,
    Tool,
)
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.definitions import definition
from vivace.models.families.calls.json_call import to_json
from vivace.models.families.calls.known_formats import MISTRAL
from vivace.models.families.calls.lark_grammar import arguments_rule, grammar_of, lark
from vivace.models.families.calls.named_call import ARGS, CALL
from vivace.models.families.calls.text_parser import TextParser
from vivace.models.families.framing import FramedFamily, MessageWriter, OpenMessage, Pieces
from vivace.models.families.interruption import tell_interruptions
from vivace.models.families.qwen25 import CHANGED, json_arguments
from vivace.models.families.token_writer import ControlName, TemplateText, TokenWriter
from vivace.models.tokenizer import Tokenizer

BEGIN, END = "<s>", "</s>"
FRAMES = {
    "system": ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "tools": ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    "user": ("[INST]", "[/INST]"),
    "tool": ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
}


class Mistral(FramedFamily):
    markers = MISTRAL.markers
    output_role = "tool"
    has_outputs_together = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        control = tokenizer.control
        super().__init__(tokenizer, start=control(FRAMES["user"][0]), end=control(END))
        self._begin = control(BEGIN)
        self._frames = {role: (control(first), control(last)) for role, (first, last) in FRAMES.items()}
        self._roles = {first: role for role, (first, _) in self._frames.items()}
        self._ends = {last for _, last in self._frames.values()}

    # ---- the log ----------------------------------------------------------------------------------

    def render(
        self,
        entries: Sequence[Entry],
        *,
        tools: Sequence[Tool] = (),
        after: Sequence[int] = (),
        effort: Effort = "",  # noqa: ARG002
    ) -> list[int]:
        entries = tell_interruptions(entries, self.unfinished_request(after))
        writer = MessageWriter(self, after)
        if entries and isinstance(entries[0], Message) and entries[0].role == "system":
            writer.write("system", [entries[0].text])
            entries = entries[1:]
        if tools:
            if after:
                writer.write("system", [TemplateText(CHANGED.strip())])
            writer.write("tools", [to_json([definition(tool) for tool in tools])])
        for entry in entries:
            writer.add(entry)
        return writer.tokens()

    def open_message(self, log: Sequence[int]) -> OpenMessage | None:
        """Return the message that the log ends inside of. An answer begins where the one before it ends."""
        for index in range(len(log) - 1, -1, -1):
            token, text = log[index], log[index + 1 :]
            if token in self._roles:
                return OpenMessage(self._roles[token], self.text(text))
            if token == self.end or token == self._begin or token in self._ends:
                return OpenMessage("assistant", self.text(text)) if text and token != self.end else None
        return None

    def unfinished_request(self, log: Sequence[int]) -> str:
        if self.unfinished_answer(log) is None:
            return ""
        first, last = self._frames["user"]
        ends = [index for index, token in enumerate(log) if token == last]
        begins = [index for index, token in enumerate(log) if token == first]
        return self.text(log[begins[-1] + 1 : ends[-1]]) if ends and begins else ""

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text, with the names of tokens that belong to calls."""
        pieces = (
            self.controls[token].encode() if token in self.controls else self.tokenizer.token_bytes(token)
            for token in tokens
        )
        return b"".join(pieces).decode("utf-8", "replace")

    # ---- what is written --------------------------------------------------------------------------

    def head(self, out: TokenWriter, role: str, *, is_first: bool) -> None:
        if is_first:
            out.control(self._begin)
        if role in self._frames:
            out.control(self._frames[role][0])

    def end_of(self, role: str) -> int:
        return self._frames[role][1] if role in self._frames else self.end

    def call(self, call: Call, *, behind: str) -> Pieces:  # noqa: ARG002
        return [ControlName(CALL), call.name, ControlName(ARGS), json_arguments(call)]

    def output(self, output: Output, *, is_first: bool) -> Pieces:  # noqa: ARG002
        return [output.text]

    # ---- what the model says ----------------------------------------------------------------------

    def opening(self, spec: OutputSpec, before: str) -> Pieces:
        tools = list(callable_tools(spec).values())
        if spec.choice != "required" or not tools or before.rfind(CALL) > before.rfind("}"):
            return ()
        certain = [tools[0].name, ControlName(ARGS)] if len(tools) == 1 else []
        return [ControlName(CALL), *certain]

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        return TextParser(callable_tools(spec), MISTRAL.style, before=self.unfinished_answer(log) or "")

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        tools = list(callable_tools(spec).values())
        if spec.choice == "required" and len(tools) == 1:
            return lark(f"start: {arguments_rule(tools[0])}")
        return grammar_of(spec, MISTRAL.form)
