"""Divide the work of a mixture of experts where tokens of a pass share experts.

Tokens that have chosen the same expert are a group, and its weights are read once for all of them. One module
serves passes of all sizes: it is compiled for the tokens of a group. Owns the cut of that work. What is
computed is kernels/expert_groups.cuh's, and to the bit that of `experts`.
"""

from dataclasses import replace
from typing import Any

from vivace.engine.runners.cuda.decode.plan import SHARED_BYTES, Plan, Size, tile_bytes

GROUP_KERNELS = ("choose_experts", "group_gate_up", "group_down", "sum_experts")
CHOOSING_WARPS = 16  # the kernel has the same number
UP_BLOCKS = 2  # of gate and up, that are on a multiprocessor at once
# Warps that multiply, of the blocks of down that are on a multiprocessor at once, by tokens of a group: 16
# tokens of gpt-oss take 2% less with 12 in place of 8, 32 of them 9% more.
DOWN_WARPS = {2: 12, 4: 12, 8: 8}
LIST_WORDS = 4  # before the groups
MOST_TOKENS = 8  # of a group
GROUP_WORDS = 2 + MOST_TOKENS  # at most
TILES = 4  # between two meetings of a block's warps
SUM_THREADS = 256
# Of a module for groups.
GROUPED: dict[str, Any] = {"tiles_at_once": 2, "keep_registers": 24}


def group_plan(plan: Plan) -> Plan:
    """Return the plan whose module has the kernels for groups."""
    size = plan.tuned.expert_group
    assert 1 < size <= MOST_TOKENS
    one, group = (Plan(plan.shape, plan.bits, n, plan.blocks, kv_bits=plan.kv_bits) for n in (1, size))
    warps = one.tuned.expert_part_warps  # a token's sums depend on it
    tuned = replace(group.tuned, expert_group=size, serves_groups=True, expert_part_warps=warps, **GROUPED)
    return replace(group, tuning=tuned)


def is_for_groups(plan: Plan) -> bool:
    return plan.tuned.serves_groups


def group_macros(plan: Plan) -> dict[str, int]:
    if not is_for_groups(plan):
        return {"EXPERT_GROUP": 0}
    return {
        "EXPERT_GROUP": 1,
        "GROUP_UP_BLOCKS": UP_BLOCKS,
        "GROUP_DOWN_BLOCKS": _down_blocks(plan),
        "GROUP_DOWN_STAGES": down_stages(plan),
        "GROUP_TILES": TILES,
    }


def most_groups(plan: Plan, tokens: int) -> int:
    """Return how many groups there can be: one for each expert, and one for each that is full."""
    places = tokens * plan.shape.experts_per_token
    return min(places, plan.shape.experts + places // plan.tokens)


def group_up_stages(plan: Plan) -> int:
    """Return the depth of the ring of gate and up: what the blocks of a multiprocessor have room for."""
    return _fitting(plan, plan.shape.hidden, plan.shape.hidden_warps, UP_BLOCKS, 16)


def down_stages(plan: Plan) -> int:
    return _fitting(plan, plan.shape.expert_ffn, part_warps(plan), _down_blocks(plan), 8)


def _down_blocks(plan: Plan) -> int:
    return -(-DOWN_WARPS[plan.tokens] // part_warps(plan))


def _fitting(plan: Plan, columns: int, warps: int, blocks: int, most: int) -> int:
    room = SHARED_BYTES // blocks - 1024  # which every block takes besides
    fixed = plan._product_bytes(columns, warps, 0, TILES, bits=plan.expert_bits)
    return max(1, min(most, (room - fixed) // (tile_bytes(columns, plan.expert_bits) + 16)))


def part_warps(plan: Plan) -> int:
    """Return the warps that share an expert's columns of the down projection: the order of its sums."""
    wish = plan.tuned.expert_part_warps
    return max((w for w in range(1, wish + 1) if plan.shape.expert_ffn % (64 * w) == 0), default=1)


def group_sizes(plan: Plan, tokens: int) -> dict[str, Size]:
    """Return the sizes of the launches for a pass of so many tokens; `plan` is `group_plan`'s."""
    shape, most = plan.shape, most_groups(plan, tokens)
    places = tokens * shape.experts_per_token
    choosing = 4 * (CHOOSING_WARPS * shape.experts + 2 * places + 2 * shape.experts)

    def product(columns: int, warps: int, stages: int, blocks: int) -> Size:
        shared = plan._product_bytes(columns, warps, stages, TILES, bits=plan.expert_bits)
        return Size((max(most, plan.blocks * blocks), 1, 1), warps * 32 + 32, 1, shared)

    return {
        "choose_experts": Size((1, 1, 1), CHOOSING_WARPS * 32, 1, choosing),
        "group_gate_up": product(shape.hidden, shape.hidden_warps, group_up_stages(plan), UP_BLOCKS),
        "group_down": product(shape.expert_ffn, part_warps(plan), down_stages(plan), _down_blocks(plan)),
        "sum_experts": Size((tokens, -(-shape.hidden // SUM_THREADS), 1), SUM_THREADS, 1, 0),
    }
