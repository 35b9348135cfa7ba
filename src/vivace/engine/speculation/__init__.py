"""Speculative decoding without a draft model: drafts come from the prediction and from the session's log.

The engine uses `Drafter`. Owns where drafts come from and how long they are. Does not verify them, and cannot
change the output: a drafted token that the model does not choose too is rejected.
"""

from vivace.engine.speculation.costs import SIZES, StepCosts
from vivace.engine.speculation.drafter import Drafter
from vivace.engine.speculation.suffix import History

__all__ = ["SIZES", "Drafter", "History", "StepCosts"]
