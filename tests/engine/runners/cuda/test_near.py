"""A token behind a short context, in two kernels a layer: the same to the bit as in five."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import Bed  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from vivace.engine.runners.cuda.decode.clusters import Feed, fits_clusters  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import SHARED_BYTES, Plan  # noqa: E402
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape  # noqa: E402

needs_kernels = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SHAPE = Shape(2, 512, 1792, 12, 2, 323, 1280)
CODER = KNOWN_SHAPES["qwen2.5-coder-1.5b"]


@needs_kernels
@pytest.mark.parametrize(
    ("position", "parts"),
    [
        (0, 1),
        (5, 1),
        (63, 1),
        (64, 1),
        (1023, 1),
        (0, 2),
        (63, 2),
        (1023, 2),
        (1024, 2),
        (1100, 2),
        (1279, 2),
    ],
)
def test_two_kernels_say_what_five_say(position: int, parts: int, seed: int) -> None:
    """Logits and the new keys and values, behind no, few and as many tokens as it is for."""
    found = []
    for is_near in (False, True):
        bed = Bed(SHAPE, 8, 1, seed, parts=parts, is_near=is_near)
        torch.manual_seed(seed + 1)
        for layer in range(SHAPE.layers):
            page = bed.buffers.kv[layer]
            page.copy_(torch.randn(page.shape).to(page.dtype))
        found.append((bed.run_pass([seed % 300], position), bed.buffers.kv.clone(), bed.buffers.x.clone()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
        assert not one.float().isnan().any()


@needs_kernels
def test_a_pass_does_not_take_numbers_of_the_pass_before(seed: int) -> None:
    """What blocks tell each other has the mark of its round: all of an earlier pass is still there."""
    bed = Bed(SHAPE, 8, 1, seed, parts=1, is_near=True)
    for layer in range(SHAPE.layers):
        bed.buffers.kv[layer].zero_()
    first = bed.run_pass([5], 0).clone()
    other = bed.run_pass([6], 0).clone()
    assert torch.equal(bed.run_pass([5], 0), first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("multiprocessors", [114, 132])
def test_it_fits_a_hopper(multiprocessors: int) -> None:
    plan = Plan(CODER, 8, 1, multiprocessors).near
    assert plan
    sizes = plan.sizes(1)
    assert max(sizes[name].shared_bytes for name in ("cluster_attention", "feed")) <= SHARED_BYTES
    feed = Feed(CODER, multiprocessors)
    assert feed.blocks + 32 <= multiprocessors
    assert feed.tiles * feed.blocks >= 2 * CODER.ffn // 8
    assert feed.down_tiles * feed.blocks // 2 >= CODER.hidden // 8


def test_only_who_fits_has_it() -> None:
    assert [name for name, shape in KNOWN_SHAPES.items() if fits_clusters(shape, 8)] == ["qwen2.5-coder-1.5b"]
    assert not any(fits_clusters(CODER, bits) for bits in (4, 16))
    assert Plan(CODER, 8, 1, kv_bits=8).near is None
    assert Plan(CODER, 8, 2).near is None
    assert Plan(CODER, 8, 2, is_batch=True).near is None


def test_a_gpu_too_small_for_two_parts_does_without() -> None:
    """There one part has more positions than a team of a cluster can have."""
    assert Plan(CODER, 8, 1, 20).near is None
