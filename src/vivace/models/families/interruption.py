"""How a model is told that the user interrupted its answer.

Owns the words, which stand in the log and in no item that a client sees. They only ever follow what was said:
nothing is prefilled again. Does not own when there was an interruption (`server/conversation`).
"""

from typing import NamedTuple

from vivace.models.families.wording import TemplateText


class InterruptionText(NamedTuple):
    """Template text around an interruption."""

    cut: TemplateText = TemplateText("")  # behind what was said so far, before the message's end
    before: TemplateText = TemplateText("")  # in the user's message, before their text
    after: TemplateText = TemplateText("")  # and behind it


INTERRUPTED = InterruptionText(
    cut=TemplateText("\n\n[interrupted]"),
)
INTERRUPTS = InterruptionText(before=TemplateText("[interrupting your answer] "))
