"""What the examples of an instruction give with a piece of code, where it is not what they say.

Owns how that is told apart. Does not find examples (`check.examples`) or run them (`check.trial`).
"""

from collections.abc import Sequence

from vivace.agent.edits.check.examples import Example
from vivace.agent.edits.check.trial import try_out
from vivace.agent.edits.repair.told import FailedExample


async def failed_examples(code: str, examples: Sequence[Example]) -> list[FailedExample] | None:
    """Return the examples that do not hold for the code, or None if they cannot be run here."""
    trials = await try_out(code, [code], examples, functions=())
    if trials is None:
        return None
    (trial,) = trials.each
    return [
        FailedExample(example.call, example.expected, came)
        for example, came, holds in zip(examples, trial.came, trial.held, strict=True)
        if not holds
    ]
