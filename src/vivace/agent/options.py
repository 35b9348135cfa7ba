"""What a face may set for a conversation beside its model.

Owns the values only. Does not own what they do (`edits.flow`, `permissions`).
"""

from typing import Literal

import msgspec

from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.agent.permissions.policy import Policy

Approval = Literal["ask", "always", "never"]  # whether the user decides, or yes or no was said beforehand


class Options(msgspec.Struct, frozen=True):
    effort: Effort = DEFAULT_EFFORT  # how hard edits are tried
    approval: Approval = "ask"  # whether the user is asked about each edit
    policy: Policy = Policy()  # what calls of tools may do by themselves
    test_command: str = ""  # that edits may run in the sandbox; "" for none
