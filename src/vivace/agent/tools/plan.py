"""The tool `update_plan`: the steps of a task, for its user to follow.

Owns nothing but the plan's shape, which is that of the Codex CLI. It does nothing and needs nothing.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from vivace.agent.permissions.decision import Need
from vivace.agent.tools.base import Arguments, FunctionTool, Step, ToolContext, ToolResult

MAX_STEPS = 50


class PlannedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: Annotated[str, Meta(max_length=500, description="in a few words")]
    status: Literal["pending", "in_progress", "completed"]


class PlanArguments(Arguments, frozen=True, kw_only=True):
    plan: Annotated[list[PlannedStep], Meta(min_length=1, max_length=MAX_STEPS)]
    explanation: str = ""


class UpdatePlan(FunctionTool[PlanArguments]):
    name: ClassVar[str] = "update_plan"
    description: ClassVar[str] = (
        "Tell the user the steps of the task and how far they are. For longer tasks only."
    )
    taints: ClassVar[bool] = False
    arguments = PlanArguments

    def needs(self, arguments: PlanArguments, context: ToolContext) -> list[Need]:
        del arguments, context
        return []

    def title(self, arguments: PlanArguments) -> str:
        done = sum(step.status == "completed" for step in arguments.plan)
        return f"{done} of {len(arguments.plan)} steps are done"

    async def run(self, arguments: PlanArguments, context: ToolContext, needs: Sequence[Need]) -> ToolResult:
        del needs
        context.plan = tuple(Step(step.step, step.status) for step in arguments.plan)
        return ToolResult("The plan is shown to the user.", self.title(arguments))
