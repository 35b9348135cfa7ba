"""A whole pass: the same to the bit however many tokens are in it, and the sampler's draws."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from vivace.engine.runners.cuda.decode import launches  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SMALL = Shape(1, 512, 1792, 4, 2, 1003, 1280)


QWEN3 = Shape(1, 512, 1792, 8, 2, 1003, 1280, qkv_bias=False, qk_norm=True, tied_head=False)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("shape", [SMALL, QWEN3], ids=["Qwen2", "Qwen3"])
def test_a_token_does_not_depend_on_the_size_of_its_pass(bits: int, shape: Shape, seed: int) -> None:
    """Drafts never change the text: logits of 1 token a pass equal those of 2, 4 and 8 to the bit."""
    tokens = torch.randint(0, shape.vocab, (8,), generator=torch.Generator().manual_seed(seed)).tolist()
    found = {}
    for size in (1, 2, 4, 8):
        bed = Bed(shape, bits, size, seed)
        rows = [bed.run_pass(tokens[at : at + size], at) for at in range(0, 8, size)]
        found[size] = torch.cat(rows)
        assert torch.equal(found[size], found[1]), size
    wanted = reference.forward(shape, bed.plain, torch.tensor(tokens, device=bed.device), bed.model.rotation)
    assert distance(found[1], wanted) < (0.03 if bits == 8 else 0.01)


def test_draws_are_those_of_the_sampler(seed: int) -> None:
    """At temperature alone the device draws what engine/output/sampler.py draws from the same logits."""
    pytest.importorskip("msgspec", reason="the engine's packages are not installed")
    from vivace.engine.output.sampler import Sampler
    from vivace.engine.wire.frames import Sampling

    bed = Bed(SMALL, 16, 4, seed)
    key = (seed << 31 | 12345) & (2**63 - 1)
    bed.poison()
    bed.buffers.x.normal_()
    bed.at(40, 4)
    state = bed.buffers.state.cpu()
    state[launches.SEED] = torch.tensor(key & 0xFFFFFFFF, dtype=torch.int64).to(torch.int32)
    state[launches.SEED_HIGH] = key >> 32
    state[launches.TEMPERATURE] = torch.tensor([0.8]).view(torch.int32)[0]
    bed.buffers.state.copy_(state)
    bed.launch("head")
    bed.launch("choose")
    chosen = (bed.buffers.ring[:4] & 0xFFFFFFFF).tolist()
    sampler = Sampler(Sampling(temperature=0.8, seed=key), [])
    rows = bed.buffers.logits.cpu().numpy()
    assert chosen == [sampler.sample(rows[i], 41 + i) for i in range(4)]
