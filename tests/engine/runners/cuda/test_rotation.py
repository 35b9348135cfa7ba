"""Positions beyond the trained context: YaRN's and Llama 3's frequencies are transformers'."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import LlamaConfig, Qwen2Config  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

from vivace.engine.runners.cuda.decode.launches import rotation_table  # noqa: E402
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B, Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.safetensors_folder import Rope, rope_factors  # noqa: E402


def table(frequency: "torch.Tensor", size: float, positions: int) -> "torch.Tensor":  # type: ignore[name-defined]
    angle = torch.outer(torch.arange(positions).float(), frequency)
    return torch.stack([angle.cos(), angle.sin()], dim=-1) * size


def test_yarn() -> None:
    """Four times the trained context of Qwen2.5-Coder."""
    rope = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "rope_theta": 1e6,
    }
    config = Qwen2Config(hidden_size=1536, num_attention_heads=12, rope_parameters=rope)
    frequency, size = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    found = rotation_table(QWEN_CODER_1_5B, 300, "cpu", 4.0)
    assert torch.allclose(found, table(frequency, size, 300), atol=1e-4)


def test_llama_3() -> None:
    """Its own stretch, from the numbers in config.json."""
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_theta": 5e5,
    }
    config = LlamaConfig(hidden_size=4096, num_attention_heads=32, rope_parameters=rope)
    frequency, size = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    factors = rope_factors(Rope(**rope), 5e5)  # type: ignore[arg-type]
    shape = Shape(1, 4096, 14336, 32, 8, 128256, 131072, rope_theta=5e5)
    assert torch.allclose(
        rotation_table(shape, 300, "cpu", 1.0, factors), table(frequency, size, 300), atol=1e-4
    )
