"""ChatML: `<|im_start|>ROLE\\nTEXT<|im_end|>`, a line break between messages. Qwen and many others use it.

Owns the frame's tokens. Does not own the order of messages (`framing`), nor their content.
"""

from collections.abc import Sequence

from vivace.models.families.framing import FramedFamily, OpenMessage
from vivace.models.families.token_writer import TemplateText, TokenWriter
from vivace.models.tokenizer import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"


class ChatML(FramedFamily):
    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, start=tokenizer.control(START), end=tokenizer.control(END))

    def head(self, out: TokenWriter, role: str, *, is_first: bool) -> None:
        out.text(TemplateText("" if is_first else "\n"))
        out.control(self.start)
        out.text(TemplateText(f"{role}\n"))

    def split(self, tokens: Sequence[int]) -> OpenMessage:
        role, _, text = self.text(tokens).partition("\n")
        return OpenMessage(role, text)
