"""A small gpt-oss: its shape, random weights as the hub has them, and the same model in transformers."""

from typing import Any

from vivace.engine.runners.cuda.model.oss import widen_mxfp4
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import GptOss, Shape

SMALL = Shape(
    *(3, 576, 4 * 192, 8, 2, 320, 4096, 150_000.0, 1e-5),
    tied_head=False,
    experts=16,
    experts_per_token=4,
    expert_ffn=192,
    head_width=64,
    oss=GptOss(window=40, yarn_factor=32.0, yarn_tokens=128),
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
    return model
