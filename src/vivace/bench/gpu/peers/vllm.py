"""vLLM on the GPU: in bf16, in 8-bit floats and in 4 bits, one user or several.

Owns how it is measured, its configuration files, and that its weights are in the format that a figure names.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vivace.bench.gpu.peers.asking import DECODED, ROUNDS
from vivace.bench.gpu.peers.transformers import transformers_config
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape

FORMATS = {"fp8": "8-bit floats", "gptq_marlin": "4 bits"}  # by vLLM's name
GPTQ = {
    "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True,
    # Otherwise vLLM looks into the file, and without one all but a mixture's experts stay in bf16.
    "modules_in_block_to_quantize": [["self_attn", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]],
}  # fmt: skip
WEIGHT_BYTES = {"fp8": 1.05, "gptq_marlin": 0.6}  # at most, scales included
SpentMs = Callable[[list[list[int]], int], float]  # prompts, tokens to say behind each → milliseconds


def measure_vllm(asked: dict[str, Any], quantization: str | None = None) -> dict[str, Any]:
    """Measure vLLM with a folder's weights, or with random ones: one user, or several at once.

    `quantization` is vLLM's own name; without, they are in bf16, and experts of gpt-oss in MXFP4.
    """
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # a function goes to its engine below
    import vllm  # type: ignore[import-not-found,unused-ignore]

    shape = KNOWN_SHAPES[asked["shape"]] if "shape" in asked else None
    if shape is None and not Path(asked["checkpoint"]).is_dir():
        raise SystemExit("vLLM is installed, but this is no folder of safetensors")
    with tempfile.TemporaryDirectory() as scratch:
        if shape:
            _write_config(shape, Path(scratch), quantization)
        model = vllm.LLM(
            scratch if shape else asked["checkpoint"],
            load_format="dummy" if shape else "auto",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            quantization=quantization,
            max_model_len=4096,
            max_num_seqs=max(asked.get("users", [1])),
            enable_prefix_caching=False,
        )
    [weight_bytes] = model.apply_model(lambda module: sum(each.nbytes for each in module.parameters()))
    if shape and quantization:
        _check_format(shape, quantization, weight_bytes)

    def spent_ms(prompts: list[list[int]], tokens: int) -> float:
        """Return how long vLLM takes to read these prompts together and say so many tokens behind each."""
        wish = vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        begun = time.perf_counter()
        model.generate([{"prompt_token_ids": each} for each in prompts], wish, use_tqdm=False)
        return (time.perf_counter() - begun) * 1e3

    found = team_figures(asked, spent_ms) if "users" in asked else one_user_figures(asked["tokens"], spent_ms)
    plain = "MXFP4" if shape and shape.oss else "bf16"
    return found | {
        "version": vllm.__version__,
        "format": FORMATS[quantization] if quantization else plain,
        "weights": "random" if shape else "the same",
        "weights_gb": weight_bytes / 1e9,
    }


def one_user_figures(tokens: list[int], spent_ms: SpentMs) -> dict[str, Any]:
    """Return one user's speed behind the first token, and when that comes."""
    spent_ms([tokens], DECODED)
    first = statistics.median(spent_ms([tokens], 1) for _ in range(ROUNDS))
    whole = statistics.median(spent_ms([tokens], DECODED + 1) for _ in range(ROUNDS))
    return {"tokens_per_s": 1e3 * DECODED / (whole - first), "first_token_ms": first}


def team_figures(asked: dict[str, Any], spent_ms: SpentMs) -> dict[str, Any]:
    """Return the speed of all users together behind their first tokens, by how many they are."""
    found, decoded = {}, asked["decoded"]
    for users in asked["users"]:
        prompts = asked["prompts"][:users]
        spent_ms(prompts, decoded)
        first = statistics.median(spent_ms(prompts, 1) for _ in range(ROUNDS))
        whole = statistics.median(spent_ms(prompts, decoded + 1) for _ in range(ROUNDS))
        found[str(users)] = {"tokens_per_s": 1e3 * users * decoded / (whole - first)}
    return {"users": found}


def _check_format(shape: Shape, quantization: str, weight_bytes: int) -> None:
    """Refuse figures of weights that vLLM has left as they were. Embedding and head stay in bf16."""
    outer = 2 * shape.vocab * shape.hidden
    if weight_bytes > 2 * outer + WEIGHT_BYTES[quantization] * (shape.parameters - outer):
        raise SystemExit(
            f"vLLM has {weight_bytes / 1e9:.1f} GB of weights: more than {FORMATS[quantization]} take"
        )


def measure_vllm_fp8(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure vLLM with weights and activations in 8-bit floats."""
    _refuse_oss(asked)
    return measure_vllm(asked, "fp8")


def measure_vllm_int4(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure vLLM with weights in 4 bits, in groups of 128, by the kernels that it chooses."""
    _refuse_oss(asked)
    if "shape" not in asked:
        raise SystemExit("this folder's weights are not in GPTQ's 4 bits")
    return measure_vllm(asked, "gptq_marlin")


def _refuse_oss(asked: dict[str, Any]) -> None:
    if "shape" in asked and KNOWN_SHAPES[asked["shape"]].oss:
        raise SystemExit("gpt-oss has its experts in MXFP4")


def _write_config(shape: Shape, folder: Path, quantization: str | None = None) -> None:
    """Write a config.json as the hub has it."""
    config = transformers_config(shape).to_dict()
    if shape.oss:
        config["quantization_config"] = {"quant_method": "mxfp4"}
    elif quantization == "gptq_marlin":
        config["quantization_config"] = GPTQ
    (folder / "config.json").write_text(json.dumps(config))
