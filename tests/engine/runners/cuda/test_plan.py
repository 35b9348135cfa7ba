"""How the work of a pass is cut: what must be the same for passes of every size. Needs no GPU, nor torch."""

from dataclasses import replace

import pytest

from vivace.engine.runners.cuda.decode.experts import expert_plan, expert_sizes, up_stages
from vivace.engine.runners.cuda.decode.plan import PARTS, PASS_TOKENS, SHARED_BYTES, Plan
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape

CONTEXTS = sorted({edge + d for edge in (64, 1024, 2048, 3072, 4096, 10240, 131072) for d in (-1, 0, 1)})


@pytest.mark.parametrize("kv_heads", [2, 4, 8])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_the_attention_is_cut_alike_in_passes_of_every_size(bits: int, kv_heads: int) -> None:
    """A token comes out the same from any of them; a longer context never has fewer parts."""
    shape = Shape(28, 1536, 8960, 16, kv_heads, 151936, 32768)
    plans = [Plan(shape, bits, size) for size in PASS_TOKENS]
    cuts = {(each.tuned.attention_warps, each.tuned.attention_cluster) for each in plans}
    assert len(cuts) == 1
    by_context = []
    for context in CONTEXTS:
        (parts,) = {each.parts_for(context) for each in plans}
        by_context.append(parts)
    assert by_context == sorted(by_context)
    for start in CONTEXTS:
        alike = plans[0].same_split_length(start, 32)
        assert 1 <= alike <= 32
        assert len({plans[0].parts_for(start + i + 1) for i in range(alike)}) == 1
        assert alike == 32 or start + alike in {1024, 2048, 3072, 10240}
    assert set(by_context) <= set(PARTS)


@pytest.mark.parametrize("bits", [4, 8])
def test_experts_have_room_beside_each_other(bits: int) -> None:
    """The down projection's weights come while gate and up run: both are on a multiprocessor at once."""
    plan = Plan(KNOWN_SHAPES["qwen3-coder-30b-a3b"], bits, 1)
    sizes = expert_sizes(plan, 1)
    assert sizes["expert_gate_up"].shared_bytes + sizes["expert_down"].shared_bytes <= SHARED_BYTES
    assert sizes["expert_gate_up"].threads + sizes["expert_down"].threads <= 2048
    blocks = [size.grid[0] * size.grid[1] for size in sizes.values()]
    assert max(blocks) <= plan.blocks  # none waits for another to end
    assert up_stages(plan) > 2


@pytest.mark.parametrize("name", ["qwen3-coder-30b-a3b", "gpt-oss-20b"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_groups_have_room(name: str, size: int) -> None:
    """As many blocks of each kernel as its grid is made for are on a multiprocessor at once."""
    whole = Plan(KNOWN_SHAPES[name], 8, 16)
    plan = expert_plan(replace(whole, tuning=replace(whole.tuned, expert_group=size)))
    for kernel, launch in expert_sizes(plan, 16).items():
        if kernel in ("group_gate_up", "group_down"):
            assert launch.grid[0] % plan.blocks == 0
            blocks = launch.grid[0] // plan.blocks
            assert blocks * (launch.shared_bytes + 1024) <= SHARED_BYTES + 1024, kernel
            assert blocks * launch.threads <= 2048


@pytest.mark.parametrize("tokens", [2, 4, 8])  # more have groups
def test_every_token_has_blocks_of_its_own(tokens: int) -> None:
    """In passes of several tokens all blocks are on the GPU at once, two of them on a multiprocessor."""
    plan = Plan(KNOWN_SHAPES["qwen3-coder-30b-a3b"], 4, 1)
    one, all_ = expert_sizes(plan, 1), expert_sizes(expert_plan(replace(plan, tokens=tokens)), tokens)
    for name in one:
        assert all_[name].grid[1 if name == "router" else 0] == tokens * (
            8 if name == "expert_gate_up" else 1
        )
        assert one[name].threads == all_[name].threads
        if name != "router":
            assert all_[name].grid[0] * all_[name].grid[1] <= 2 * plan.blocks  # all of them run at once
            assert 2 * all_[name].shared_bytes <= SHARED_BYTES
