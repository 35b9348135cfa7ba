"""Weights from files: names, both formats, and what cannot be read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: vivace extras add cuda")
save_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file

from vivace.engine.runners.cuda.model.reference import StateDict  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import describe, hugging_face_name, read_checkpoint  # noqa: E402
from vivace.errors import StartError  # noqa: E402

SHAPE = Shape(2, 512, 1024, 4, 2, 320, 640)
GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.down_proj": "ffn_down",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
}  # fmt: skip


def gguf_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{GGUF_NAMES['.'.join(parts[2:-1])]}.{parts[-1]}"
    top = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    return f"{top[parts[0]]}.weight"


def write_gguf(
    path: Path, weights: StateDict, architecture: str = "qwen2", kind: str = "Q8_0", shape: Shape = SHAPE
) -> None:
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_context_length(shape.trained_tokens)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    if architecture.startswith("qwen3"):
        writer.add_key_length(128)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_per_token)
        writer.add_expert_feed_forward_length(shape.expert_ffn)
    for name, tensor in weights.items():
        values = tensor.float().numpy()
        wanted = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(gguf_name(name), gguf.quantize(values, wanted), raw_dtype=wanted)
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


def test_the_header_alone_gives_the_shape(tmp_path: Path, seed: int) -> None:
    """Before anything large is read, the shape is known."""
    write_gguf(tmp_path / "tiny.gguf", random_weights(SHAPE, seed))
    assert describe(tmp_path / "tiny.gguf") == read_checkpoint(tmp_path / "tiny.gguf")[0]


def test_what_it_cannot_read(tmp_path: Path, seed: int) -> None:
    """Another architecture, other heads, what is no model: one line each, that says what was found."""
    weights = random_weights(SHAPE, seed)
    write_gguf(tmp_path / "other.gguf", weights, architecture="gpt2")
    write_gguf(tmp_path / "heads.gguf", weights, shape=replace(SHAPE, heads=8))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 40)
    (tmp_path / "text.gguf").write_text("hello, this is no model at all")
    for name, words in {
        "other": "is a gpt2 model; the GPU engine knows qwen2, llama",
        "heads": "its heads are 64 wide, and not 128",
        "broken": "is no GGUF file that can be read",
        "text": "it begins with b'hell'",
    }.items():
        for read in (describe, read_checkpoint):
            with pytest.raises(StartError) as raised:
                read(tmp_path / f"{name}.gguf")
            assert words in raised.value.message
            assert raised.value.hint


def test_a_quantisation_that_nobody_turns_back(tmp_path: Path, seed: int) -> None:
    """A kind of numbers from the future is named, and refused before anything large is read."""
    file = tmp_path / "tiny.gguf"
    write_gguf(file, random_weights(SHAPE, seed))
    data = bytearray(file.read_bytes())
    at = data.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 16
    data[at : at + 4] = (99).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(StartError, match="weights of the kind number 99"):
        describe(file)


def test_a_file_that_was_cut_off(tmp_path: Path, seed: int) -> None:
    """Half a download is no model."""
    file = tmp_path / "tiny.gguf"
    write_gguf(file, random_weights(SHAPE, seed))
    file.write_bytes(file.read_bytes()[:-100_000])
    with pytest.raises(StartError, match="ends before its weights do"):
        read_checkpoint(file)


def test_llamas_pairs_are_put_apart(tmp_path: Path, seed: int) -> None:
    """A llama file holds the two dimensions that turn together side by side; read, they are 64 apart."""
    weights = random_weights(SHAPE, seed)
    for index in range(SHAPE.layers):
        for name in "qkv":
            del weights[f"layers.{index}.self_attn.{name}_proj.bias"]
    stored = StateDict(weights)
    for name, tensor in weights.items():
        if "q_proj" in name or "k_proj" in name:
            halves = tensor.reshape(-1, 2, 64, tensor.shape[1])
            stored[name] = halves.transpose(1, 2).reshape(tensor.shape)
    write_gguf(tmp_path / "tiny.gguf", stored, architecture="llama", kind="F16")
    _, found = read_checkpoint(tmp_path / "tiny.gguf")
    name = "layers.1.self_attn.k_proj.weight"
    assert torch.allclose(found[name].float(), weights[name].float(), atol=1e-3)
    model, _ = build_model(SHAPE, found, 16, "cpu", 64)
    assert not model.layers[0].bias.any()


def test_names() -> None:
    """GGUF's names become Hugging Face's."""
    assert hugging_face_name("blk.3.attn_q.bias") == "layers.3.self_attn.q_proj.bias"
    assert hugging_face_name("token_embd.weight") == "embed_tokens.weight"
    assert hugging_face_name("output_norm.weight") == "norm.weight"
