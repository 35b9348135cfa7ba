"""ChatML: `<|im_start|>ROLE\\nTEXT<|im_end|>`, a line break between messages. Qwen and many others use it.

Owns the frame's tokens. Does not own the order of messages (`framing`), nor what stands in them.
"""

from collections.abc import Sequence

from vivace.models.families.framing import Framed, Opened
from vivace.models.families.wording import TemplateText, Wording
from vivace.models.tokenizer import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"


class ChatML(Framed):
    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, start=tokenizer.control(START), end=tokenizer.control(END))

    def head(self, wording: Wording, role: str, *, is_first: bool) -> None:
        wording.text(TemplateText("" if is_first else "\n"))
        wording.control(self.start)
        wording.text(TemplateText(f"{role}\n"))

    def split(self, tokens: Sequence[int]) -> Opened:
        role, _, text = self.text(tokens).partition("\n")
        return Opened(role, text)
