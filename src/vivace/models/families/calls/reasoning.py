"""Reasoning in a model's output: the tags it stands between, as data, and which of them a template uses.

Owns the known tags. Line breaks next to a tag belong to the template and are nobody's text. Does not own how
an answer is read (`text_parser`).
"""

import msgspec


class Reasoning(msgspec.Struct, frozen=True):
    """Tags around reasoning. `begun` and `ended` are what the template writes, with its line breaks."""

    opening: str
    closing: str
    begun: str  # `opening` and what the template puts between it and the reasoning
    ended: str  # what it puts between the reasoning and the answer, with `closing`
    is_repeated: bool = False  # it may come again behind text

    @property
    def skipped(self) -> str:
        """Return what an answer without reasoning begins with."""
        return self.begun + self.ended

    @property
    def ends(self) -> tuple[str, str]:
        return self.closing, "\n" + self.closing

    def is_open(self, text: str) -> bool:
        """Return whether a text ends inside of reasoning."""
        return text.rfind(self.opening) > text.rfind(self.closing)


THINK, THOUGHT = "<think>", "</think>"
THINKING = Reasoning(THINK, THOUGHT, f"{THINK}\n", f"\n{THOUGHT}\n\n")


def tags(opening: str, closing: str, *, is_repeated: bool = False) -> Reasoning:
    """Return tags without line breaks around them."""
    return Reasoning(opening, closing, opening, closing, is_repeated)


KNOWN = (
    tags("[THINK]", "[/THINK]"),  # Mistral
    tags("<seed:think>", "</seed:think>"),
    tags("<mm:think>", "</mm:think>"),  # MiniMax M3
    tags("<think:opensource>", "</think:opensource>"),  # Hunyuan
    tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    tags("<|inner_prefix|>", "<|inner_suffix|>", is_repeated=True),  # Apertus
    tags("<|open|>think<|sep|>", "<|close|>think<|sep|>"),  # Kimi K3
    Reasoning("<|channel>thought", "<channel|>", "<|channel>thought\n", "\n<channel|>", is_repeated=True),
    Reasoning(
        "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]",
        "Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n",
    ),
    THINKING,
)  # fmt: skip


def reasoning_of(written: str, thought: str = "", answer: str = "") -> Reasoning | None:
    """Return the tags of a template that are in what it wrote, or in itself; None if it knows none.

    Where a `thought` and an `answer` stand in what was written, the line breaks around the tags are taken
    from there.
    """
    found = next((one for one in KNOWN if one.closing in written and one.opening in written), None)
    if not found or not thought:
        return found
    start = written.find(thought)
    begin = written.rfind(found.opening, 0, max(start, 0))
    end = written.find(found.closing, start + len(thought))
    last = written.find(answer, end + len(found.closing)) if answer and end >= 0 else -1
    if min(start, begin, end, last) < 0:
        return found
    begun, ended = written[begin:start], written[start + len(thought) : last]
    if begun.strip() != found.opening or not ended.strip().startswith(found.closing):
        return found
    return msgspec.structs.replace(found, begun=begun, ended=ended)
