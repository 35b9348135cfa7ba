"""A small gpt-oss: its shape, random weights as the hub has them, and the same model in transformers."""

import json
from pathlib import Path
from typing import Any

from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.model.oss import widen_mxfp4
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import GptOss, Shape
from vivace.engine.runners.cuda.weights.layout import rotation_pairs, untile

SMALL = Shape(
    *(3, 576, 4 * 192, 8, 2, 640, 4096, 150_000.0, 1e-5),
    tied_head=False,
    experts=16,
    experts_per_token=4,
    expert_ffn=192,
    head_width=64,
    oss=GptOss(window=40, yarn_factor=32.0, yarn_tokens=128, limit=1.5),  # which random numbers reach
)


def config_of(shape: Shape) -> dict[str, Any]:
    """config.json as the hub has it."""
    assert shape.oss
    kinds = ["sliding_attention" if shape.window_of(i) else "full_attention" for i in range(shape.layers)]
    return {
        "model_type": "gpt_oss", "num_hidden_layers": shape.layers, "hidden_size": shape.hidden,
        "intermediate_size": shape.expert_ffn, "num_attention_heads": shape.heads,
        "head_dim": shape.head_width, "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.trained_tokens, "vocab_size": shape.vocab,
        "rms_norm_eps": shape.norm_epsilon, "tie_word_embeddings": False, "attention_bias": True,
        "num_local_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token,
        "sliding_window": shape.oss.window, "layer_types": kinds, "swiglu_limit": shape.oss.limit,
        "hidden_act": "silu", "rope_theta": shape.rope_theta,
        "rope_scaling": {
            "rope_type": "yarn", "factor": shape.oss.yarn_factor, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": shape.oss.yarn_tokens,
        },
        "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip


def transformers_model(shape: Shape, weights: StateDict) -> Any:
    """transformers' model with the same weights, in fp32."""
    import transformers

    assert shape.oss
    told = config_of(shape)
    del told["quantization_config"]
    rope = told.pop("rope_scaling") | {"rope_theta": told.pop("rope_theta")}
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**told, rope_parameters=rope))
    named = {}
    for name, rows in weights.items():
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            name = name.removesuffix("_blocks")
            rows = widen_mxfp4(rows, weights[f"{name}_scales"]).transpose(1, 2)
        named[name if name == "lm_head.weight" else f"model.{name}"] = rows.float()
    model.float().eval().load_state_dict(named)
    for layer in model.model.layers:
        layer.mlp.experts.limit = shape.oss.limit  # not every version takes it from its configuration
    return model


def write_folder(folder: Path, shape: Shape, weights: StateDict, **changes: Any) -> Path:
    from safetensors.torch import save_file

    named = {name if name == "lm_head.weight" else f"model.{name}": rows for name, rows in weights.items()}
    save_file(named, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(config_of(shape) | changes))
    return folder


_GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.sinks": "attn_sinks",
    "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
}  # fmt: skip


def write_gguf(path: Path, shape: Shape, weights: StateDict) -> Path:
    """As llama.cpp's converter writes it: gate and up apart, all other numbers in 32 bits here."""
    import gguf

    assert shape.oss
    writer = gguf.GGUFWriter(str(path), "gpt-oss")
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.expert_ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_context_length(shape.trained_tokens)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.experts_per_token)
    writer.add_expert_feed_forward_length(shape.expert_ffn)
    writer.add_sliding_window(shape.oss.window)
    writer.add_rope_scaling_factor(shape.oss.yarn_factor)
    writer.add_rope_scaling_orig_ctx_len(shape.oss.yarn_tokens)
    mxfp4, plain = gguf.GGMLQuantizationType.MXFP4, gguf.GGMLQuantizationType.F32
    for name, rows in weights.items():
        if name.endswith("_scales"):
            continue
        if ".experts." in name:
            at, kind = name.split(".mlp.experts.")
            kinds = ("gate", "up") if kind.startswith("gate_up") else ("down",)
            for part, own in enumerate(kinds):
                tensor = f"blk.{at.split('.')[1]}.ffn_{own}_exps"
                mine = rows[:, part :: len(kinds)]
                if kind.endswith("_bias"):
                    writer.add_tensor(f"{tensor}.bias", mine.float().numpy(), raw_dtype=plain)
                    continue
                scales = weights[name.replace("_blocks", "_scales")][:, part :: len(kinds)]
                values = widen_mxfp4(mine, scales).numpy()
                writer.add_tensor(f"{tensor}.weight", gguf.quantize(values, mxfp4), raw_dtype=mxfp4)
            continue
        stem, _, last = name.rpartition(".")
        if name.endswith("sinks"):
            stem, last = name, "weight"
        before, own = (
            (f"blk.{stem.split('.')[1]}.", stem.split(".", 2)[2]) if "layers" in stem else ("", stem)
        )
        writer.add_tensor(f"{before}{_GGUF_NAMES[own]}.{last}", rows.float().numpy(), raw_dtype=plain)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded_weights(weights: StateDict, model: Model) -> StateDict:
    """The weights with the attention's and the head's as the kernels have them; experts are as they were."""
    shape, found = model.shape, StateDict(weights)
    head = untile(model.head, shape.hidden)
    found["lm_head.weight"] = head[: shape.vocab]
    order = rotation_pairs(shape.qkv_rows // shape.head_width, shape.head_width)
    q, kv = shape.attention_width, shape.kv_heads * shape.head_width
    for index, layer in enumerate(model.layers):
        rows = untile(layer.qkv, shape.hidden)
        rows = rows.new_empty(rows.shape).index_copy_(0, order.to(rows.device), rows)
        at = f"layers.{index}.self_attn."
        for name, part in zip("qkv", rows.split([q, kv, kv]), strict=True):
            found[f"{at}{name}_proj.weight"] = part
        found[f"{at}o_proj.weight"] = untile(layer.out, q)
    return found
