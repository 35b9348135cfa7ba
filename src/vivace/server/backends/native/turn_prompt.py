"""A turn's prompt when it is in the log: what the engine gets with it, and how its answer is read.

Owns shapes only. Does not own how a prompt is made (`prompt_writing`, `infill_prompt`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vivace.engine.wire.frames import Grammar
from vivace.models.families.base import Family, OutputSpec
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.conversation.token_log import LogContents


@dataclass(frozen=True)
class TurnPrompt:
    tokens: int  # of the whole log before the answer, with a provisional tail
    log_contents: LogContents  # what the log has after this turn
    tokenize_s: float
    provisional_tail: list[int] = field(default_factory=list)  # which is no part of the log
    kept_tokens: int = 0  # of the log's first: other conversations begin with them
    prediction: list[int] = field(default_factory=list)  # what the answer will resemble
    candidates: list[list[int]] = field(default_factory=list)  # what is to be scored
    repeated_tokens: int = 0  # with which the answer begins: the client has them, they are not counted
    decoder: OutputDecoder | None = None  # None: nothing is generated
    grammar: Grammar | None = None
    family: Family | None = None  # that can think; None: there is no thinking to end
    spec: OutputSpec = field(default_factory=OutputSpec)  # what the answer may contain

    def end_of_thinking(self, log: Sequence[int]) -> list[int]:
        """Return the tokens that end the thinking in which the log ends; none if there is no thinking."""
        return self.family.end_thinking(log, self.spec) if self.family else []
