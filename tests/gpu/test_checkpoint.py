"""Weights from files: names, both formats, the cache, and what cannot be read."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'vivace[cuda]'")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'vivace[cuda]'")
save_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file

from vivace.engine.runners.cuda.cache import read_through_cache  # noqa: E402
from vivace.engine.runners.cuda.checkpoint import hugging_face_name, read_checkpoint  # noqa: E402
from vivace.engine.runners.cuda.reference import Plain  # noqa: E402
from vivace.engine.runners.cuda.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.weights import build_model, random_weights  # noqa: E402
from vivace.errors import StartError  # noqa: E402

SHAPE = Shape(2, 512, 1024, 4, 2, 320, 640)
GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
}  # fmt: skip


def gguf_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{GGUF_NAMES['.'.join(parts[2:-1])]}.{parts[-1]}"
    return {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]


def write_gguf(path: Path, weights: Plain, architecture: str = "qwen2") -> None:
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(SHAPE.layers)
    writer.add_embedding_length(SHAPE.hidden)
    writer.add_feed_forward_length(SHAPE.ffn)
    writer.add_head_count(SHAPE.heads)
    writer.add_head_count_kv(SHAPE.kv_heads)
    writer.add_context_length(SHAPE.trained_tokens)
    writer.add_rope_freq_base(SHAPE.rope_theta)
    writer.add_layer_norm_rms_eps(SHAPE.norm_epsilon)
    for name, tensor in weights.items():
        values = tensor.float().numpy()
        kind = gguf.GGMLQuantizationType.Q8_0 if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_quantised_gguf_is_the_model_it_was_made_of(tmp_path: Path, seed: int) -> None:
    """Names, shapes and values come back, up to the rounding of the file."""
    weights = random_weights(SHAPE, seed)
    file = tmp_path / "tiny.gguf"
    write_gguf(file, weights)
    shape, found = read_checkpoint(file)
    assert shape.problem() == ""
    assert (shape.layers, shape.hidden, shape.ffn, shape.vocab) == (2, 512, 1024, 320)
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        assert float((found[name].float() - tensor.float()).norm() / tensor.float().norm()) < 0.01, name


def test_the_second_read_comes_from_the_cache(tmp_path: Path, seed: int) -> None:
    """A second read opens the cached file only; a damaged cache is made anew."""
    file, cache = tmp_path / "tiny.gguf", tmp_path / "cache"
    write_gguf(file, random_weights(SHAPE, seed))
    first = read_through_cache(file, cache)
    second = read_through_cache(file, cache)
    assert first[0] == second[0]
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
    next(cache.iterdir()).write_bytes(b"broken")
    third = read_through_cache(file, cache)
    assert third[0] == first[0]


def test_safetensors(tmp_path: Path, seed: int) -> None:
    """A Hugging Face folder gives the same matrices, and a model can be built of them."""
    weights = random_weights(SHAPE, seed)
    save_file({f"model.{name}": tensor for name, tensor in weights.items()}, str(tmp_path / "m.safetensors"))
    config = {
        "model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 640,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape, found = read_checkpoint(tmp_path)
    assert shape == SHAPE
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())
    model, dense = build_model(shape, found, 8, "cpu", 64)
    assert len(model.layers) == len(dense) == 2


def test_what_it_cannot_read(tmp_path: Path, seed: int) -> None:
    """Another architecture is refused in one line that names it."""
    write_gguf(tmp_path / "other.gguf", random_weights(SHAPE, seed), architecture="gpt2")
    with pytest.raises(StartError, match="gpt2"):
        read_checkpoint(tmp_path / "other.gguf")


def test_names() -> None:
    """GGUF's names become Hugging Face's."""
    assert hugging_face_name("blk.3.attn_q.bias") == "layers.3.self_attn.q_proj.bias"
    assert hugging_face_name("token_embd.weight") == "embed_tokens.weight"
    assert hugging_face_name("output_norm.weight") == "norm.weight"
