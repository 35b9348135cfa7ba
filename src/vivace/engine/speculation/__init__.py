"""Drafts without a draft model: what the turn will probably say next, taken from text that is already there.

`Drafter` is what the engine talks to. Owns where drafts come from and how long they are. Does not verify
them, and cannot change the text: a draft that the model does not say too is dropped.
"""

from vivace.engine.speculation.costs import SIZES, StepCosts
from vivace.engine.speculation.drafter import Drafter
from vivace.engine.speculation.suffix import History

__all__ = ["SIZES", "Drafter", "History", "StepCosts"]
