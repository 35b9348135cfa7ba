"""Divide the work of a mixture of experts: macros and sizes of its three kernels.

Every token has its own experts, so these kernels work on one token each and serve passes of all sizes: they
are compiled twice, for a pass of one token and for larger ones, and `share_experts` finds them. Owns the cut
of the work. Does not own their arguments (`launches`) or what they compute (kernels/experts.cuh).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from vivace.engine.runners.cuda.decode.expert_groups import (
    GROUP_KERNELS,
    group_macros,
    group_plan,
    group_sizes,
    group_up_stages,
    is_for_groups,
    part_warps,
)
from vivace.engine.runners.cuda.decode.plan import Plan, Size, tile_bytes

if TYPE_CHECKING:
    from vivace.engine.runners.cuda.decode.launch import Launch

EXPERT_KERNELS = ("router", "expert_gate_up", "expert_down")
ROUTER_WARPS = 4  # of a block: an expert each; the kernel has the same number
CHOICE_BYTES = 16  # to align it, besides scores and experts
DOWN_GROUP = 2  # tiles of the down projection between two meetings
# How a multiprocessor's room is divided where there are several tokens.
SEVERAL: dict[str, Any] = {
    "expert_blocks": 2,
    "expert_up_kb": 74,
    "expert_down_stages": 3,
    "expert_down_registers": 88,
    "tiles_at_once": 4,
}


class Launcher(Protocol):
    def run(self, launch: "Launch") -> None: ...


def expert_plan(plan: Plan) -> Plan:
    """Return the plan whose module has the kernels of the experts for a pass.

    For one token a multiprocessor has one block of gate and up and one of down. For several it has two of
    each, with rings half as deep and longer lists of tiles; or tokens that share an expert are a group. No
    number depends on that.
    """
    if plan.tokens == 1 and not plan.is_batch:
        return plan
    if plan.tuned.expert_group:
        return group_plan(plan)
    one = Plan(plan.shape, plan.bits, 1, plan.blocks, kv_bits=plan.kv_bits)
    return replace(one, tuning=replace(one.tuned, **SEVERAL))


def share_experts(make: Callable[[Plan], Launcher]) -> Callable[[Plan], Launcher]:
    """Return `make` with launchers that find the experts' kernels in the module that has them."""
    made: dict[Plan, Launcher] = {}

    def make_shared(plan: Plan) -> Launcher:
        experts = expert_plan(plan)
        if experts not in made:
            made[experts] = make(experts)
        return made[experts] if plan == experts else _WithExperts(make(plan), made[experts])

    return make_shared


class _WithExperts:
    def __init__(self, own: Launcher, experts: Launcher) -> None:
        self._own, self._experts = own, experts

    def run(self, launch: "Launch") -> None:
        (self._experts if launch.kernel in (*EXPERT_KERNELS, *GROUP_KERNELS) else self._own).run(launch)


def expert_macros(plan: Plan) -> dict[str, int]:
    shape, tuned = plan.shape, plan.tuned
    return {
        "EXPERTS": shape.experts,
        "EXPERTS_PER_TOKEN": shape.experts_per_token,
        "EXPERT_FFN": shape.expert_ffn,
        "EXPERT_UP_STAGES": group_up_stages(plan) if is_for_groups(plan) else up_stages(plan),
        "EXPERT_DOWN_STAGES": tuned.expert_down_stages,
        "EXPERT_DOWN_GROUP": DOWN_GROUP,
        "EXPERT_DOWN_WARPS": down_warps(plan),
        "EXPERT_DOWN_REGISTERS": tuned.expert_down_registers,
        "EXPERT_UP_BLOCKS": tuned.expert_up_blocks,
        "EXPERT_EARLY_X": int(tuned.expert_early_x),
        **group_macros(plan),
    }


def up_slices(plan: Plan, tokens: int) -> int:
    """Return the blocks that share one expert's gate and up: as many as run at once, or one."""
    return max(1, _blocks_at_once(plan) // max(1, plan.shape.experts_per_token * tokens))


def _blocks_at_once(plan: Plan) -> int:
    return plan.blocks * plan.tuned.expert_blocks


def up_stages(plan: Plan) -> int:
    """Return the depth of the ring of gate and up: no more than the tiles of a block in the smallest pass."""
    tiles = 2 * plan.shape.expert_ffn // 8
    fitting = (plan.tuned.expert_up_kb << 10) // tile_bytes(plan.shape.hidden, plan.expert_bits)
    return max(1, min(fitting, -(-tiles // up_slices(plan, plan.tuned.expert_blocks))))


def down_warps(plan: Plan) -> int:
    """Return the warps of the down projection: as many for each of a token's experts."""
    return plan.shape.experts_per_token * part_warps(plan)


def _down_tiles(plan: Plan, tokens: int) -> int:
    """Return the tiles of a block of the down projection: two, or so many that all blocks run at once."""
    return max(DOWN_GROUP, -(-plan.shape.hidden // 8 * tokens // _blocks_at_once(plan)))


def expert_sizes(plan: Plan, tokens: int) -> dict[str, Size]:
    """Return the sizes of the launches for a pass of so many tokens; `plan` is `expert_plan`'s."""
    shape, tuned = plan.shape, plan.tuned
    routers = shape.experts // ROUTER_WARPS
    router = Size((plan.blocks if tuned.expert_later_kb else routers, tokens, 1), ROUTER_WARPS * 32, 1, 0)
    if is_for_groups(plan):
        return {"router": router, **group_sizes(plan, tokens)}
    chosen, stages, tiles, warps = (
        shape.experts_per_token,
        up_stages(plan),
        _down_tiles(plan, tokens),
        down_warps(plan),
    )
    choice = 4 * (shape.experts + 2 * chosen) + CHOICE_BYTES
    bits = plan.expert_bits
    up = plan._product_bytes(shape.hidden, shape.hidden_warps, stages, stages, bits=bits)
    down = plan._product_bytes(
        chosen * shape.expert_ffn, warps, tuned.expert_down_stages, DOWN_GROUP, chosen, bits=bits
    )
    down += tiles * 8 * chosen * 4  # the factors of its rows
    slices, parts = up_slices(plan, tokens), -(-shape.hidden // 8 // tiles)
    return {
        "router": router,
        "expert_gate_up": Size((tokens * chosen, slices, 1), shape.hidden_warps * 32 + 32, 1, up + choice),
        "expert_down": Size((tokens, parts, 1), warps * 32 + 32, 1, down + choice),
    }
