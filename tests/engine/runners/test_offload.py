"""How much of a model goes onto a GPU."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.tiny_models import write_tiny_model
from vivace.engine.runners.offload import MOST_CELLS, RESERVE_BYTES, ModelSize, plan_offload, read_size

QWEN = ModelSize(layers=28, weight_bytes=1_117_320_768, kv_token_bytes=28_672)


def test_the_header_tells_the_sizes(smol: Path) -> None:
    """SmolLM2-135M: 30 layers with 3 KV heads of 64."""
    assert read_size(smol) == ModelSize(30, smol.stat().st_size, 30 * 3 * 2 * 64 * 2)


def test_a_model_that_fits_is_whole_on_the_gpu() -> None:
    """With KV in half of the rest, or as much as the user said."""
    assert plan_offload(QWEN, 24 << 30, 16384, 0) == (29, 29, MOST_CELLS)
    assert plan_offload(QWEN, 4 << 30, 16384, 0).context_tokens == 44_442
    assert plan_offload(QWEN, 24 << 30, 16384, 8192) == (29, 29, 8192)
    assert str(plan_offload(QWEN, 24 << 30, 16384, 0)) == "all layers"


def test_recurrent_states_take_their_room(tmp_path: Path) -> None:
    """The header says what one takes; there are as many as fit into a GiB, and the KV gets what is left."""
    size = read_size(write_tiny_model("qwen35", tmp_path))
    assert 0 < size.states_bytes <= 1 << 30
    hybrid = QWEN._replace(states_bytes=1 << 30)
    less = (1 << 30) // 2 // QWEN.kv_token_bytes
    without, with_states = (plan_offload(each, 4 << 30, 16384, 0).context_tokens for each in (QWEN, hybrid))
    assert without - with_states in (less, less + 1)


def test_a_model_that_does_not_fit_is_there_in_part() -> None:
    """And one line says how much of it."""
    part = plan_offload(QWEN, 2 << 30, 16384, 0)
    assert 0 < part.layers < part.of_layers
    assert str(part) == f"{part.layers} of 29 layers: the rest did not fit and is on the CPU"


@given(
    st.builds(
        ModelSize,
        st.integers(1, 100),
        st.integers(1, 1 << 37),
        st.integers(1, 1 << 20),
        st.integers(0, 1 << 31),
    ),
    st.integers(0, 1 << 38),
    st.integers(256, 1 << 18),
    st.sampled_from([0, 4096, 1 << 17]),
)
def test_what_is_planned_fits(size: ModelSize, free_bytes: int, cells: int, gpu_cells: int) -> None:
    """Weights and KV of the planned layers never need more than is free, and more memory never means less."""
    planned = plan_offload(size, free_bytes, cells, gpu_cells)
    assert 0 <= planned.layers <= planned.of_layers == size.layers + 1
    needed = size.weight_bytes + planned.context_tokens * size.kv_token_bytes
    room = max(0, free_bytes - RESERVE_BYTES - size.states_bytes)
    assert needed * planned.layers <= room * planned.of_layers
    assert plan_offload(size, free_bytes + (1 << 30), cells, gpu_cells).layers >= planned.layers
