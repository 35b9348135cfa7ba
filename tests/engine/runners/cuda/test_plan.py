"""How the work of a pass is cut: what must be the same for passes of every size. Needs no GPU, nor torch."""

import pytest

from vivace.engine.runners.cuda.decode.plan import PARTS, PASS_TOKENS, Plan
from vivace.engine.runners.cuda.model.shape import Shape

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
