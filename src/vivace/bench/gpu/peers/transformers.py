"""transformers on the GPU: a static cache, the forward pass compiled into CUDA graphs.

Owns how it is measured, its configuration of a shape, and its models with our weights or random ones, which
tests and benches compare ours with.
"""

import time
from pathlib import Path
from typing import Any

from vivace.bench.gpu.peers.asking import CONTEXT, DECODED, median_figures
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, KNOWN_SHAPES, Shape


def measure_transformers(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure transformers in bf16: static cache, forward pass compiled into CUDA graphs."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    import transformers  # type: ignore[import-not-found,unused-ignore]

    if "shape" in asked:
        model = random_transformers(KNOWN_SHAPES[asked["shape"]])
    else:
        model = load_transformers(Path(asked["checkpoint"]))
    prompt = torch.tensor([asked["tokens"]], device="cuda")
    cache = transformers.StaticCache(config=model.config, max_cache_len=CONTEXT + DECODED + 8)
    positions = torch.arange(CONTEXT, CONTEXT + DECODED, device="cuda").reshape(-1, 1, 1)
    step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

    def once() -> tuple[float, float]:
        """Return milliseconds to the first token, and of one later token."""
        cache.reset()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        out = model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        first = time.perf_counter()
        for number in range(DECODED):
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call,unused-ignore]
            at = positions[number]
            out = step(token, past_key_values=cache, position_ids=at, use_cache=True)  # type: ignore[no-untyped-call,unused-ignore]
            token = out.logits[:, -1:].argmax(-1).clone()
        torch.cuda.synchronize()
        return (first - begun) * 1e3, (time.perf_counter() - first) * 1e3 / DECODED

    with torch.inference_mode():
        found = median_figures(once)
    return found | {"version": transformers.__version__}


def transformers_config(shape: Shape) -> Any:
    """Return transformers' own configuration of a shape."""
    import transformers

    if shape.oss:
        rope = {
            "rope_type": "yarn", "rope_theta": shape.rope_theta, "factor": shape.oss.yarn_factor,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": shape.oss.yarn_tokens,
        }  # fmt: skip
        return transformers.GptOssConfig(
            architectures=["GptOssForCausalLM"], num_hidden_layers=shape.layers, hidden_size=shape.hidden,
            intermediate_size=shape.expert_ffn, num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads, head_dim=shape.head_width, num_local_experts=shape.experts,
            num_experts_per_tok=shape.experts_per_token, sliding_window=shape.oss.window,
            vocab_size=shape.vocab, rope_parameters=rope,
        )  # fmt: skip
    family = "Qwen3Moe" if shape.experts else "Qwen3" if shape.qk_norm else "Qwen2"
    experts = {
        "num_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token,
        "moe_intermediate_size": shape.expert_ffn, "norm_topk_prob": True,
    }  # fmt: skip
    return getattr(transformers, f"{family}Config")(
        architectures=[f"{family}ForCausalLM"],
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=HEAD_DIM,
        max_position_embeddings=shape.trained_tokens,
        rms_norm_eps=shape.norm_epsilon,
        rope_theta=shape.rope_theta,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=False,
        **(experts if shape.experts else {}),
    )


def _empty_transformers(shape: Shape, device: str) -> Any:
    """Return transformers' model in bf16, with whatever is in memory for weights."""
    import torch
    import transformers

    config = transformers_config(shape)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.to(torch.bfloat16).to_empty(device=device)
    # Frequencies are no weights: those of a model that is made on the meta device are lost.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    return model.eval()


def random_transformers(shape: Shape, device: str = "cuda") -> Any:
    """Return transformers' own model with random weights."""
    import torch

    model = _empty_transformers(shape, device)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5)
    return model


def load_transformers(checkpoint: Path, device: str = "cuda") -> Any:
    """Load our weights in bf16 into transformers' own model."""
    import torch

    from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint

    shape, weights = read_checkpoint(checkpoint)
    model = _empty_transformers(shape, device)
    state = {name if name == "lm_head.weight" else f"model.{name}": each for name, each in weights.items()}
    state.setdefault("lm_head.weight", weights["embed_tokens.weight"])
    model.load_state_dict({name: each.to(torch.bfloat16) for name, each in state.items()}, strict=True)
    return model
