"""Others on the same GPU: vLLM, transformers (compiled), llama.cpp where it is built for CUDA.

    python -m vivace.bench.gpu.peer NAME <<< '{"checkpoint": …, "tokens": […]}'
    python -m vivace.bench.gpu.peer vllm <<< '{"shape": …, "prompts": […], "users": [1, 2], "decoded": 300}'

With the same weights, or with random ones of the same shape (`"shape": NAME` in place of a checkpoint); of
vLLM also the speed of several users together. Each in a process of its own, one after the other, nothing of
ours loaded beside it. Owns how each is asked for its best; a peer that is not installed, or fails, is a line
in the report and not the end of it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vivace.child_python import module_command
from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, KNOWN_SHAPES, Shape
from vivace.errors import StartError

CONTEXT, DECODED, ROUNDS = 1024, 128, 3
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 300  # of each of several users
TIMEOUT_S = 240.0
TEAM_TIMEOUT_S = 420.0
FORMATS = {"fp8": "8-bit floats", "gptq_marlin": "4 bits"}  # by vLLM's name
GPTQ = {
    "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True,
    # Otherwise vLLM looks into the file, and without one all but a mixture's experts stay in bf16.
    "modules_in_block_to_quantize": [["self_attn", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]],
}  # fmt: skip
WEIGHT_BYTES = {"fp8": 1.05, "gptq_marlin": 0.6}  # at most, scales included
SpentMs = Callable[[list[list[int]], int], float]  # prompts, tokens to say behind each → milliseconds
LLAMA_EXTRA = "`vivace extras add cuda --llama-cpp`"


def measure_peers(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what each peer reaches behind the first 1,024 of `tokens`, or why it could not be measured."""
    asked = asked | {"tokens": asked["tokens"][:CONTEXT]}
    return {name: _ask(name, asked, TIMEOUT_S) for name in PEERS}


def make_prompts(users: int, tokens: int, vocab: int) -> list[list[int]]:
    """Return a prompt for each user, that begins as no other does."""
    return [[(user * 7919 + at * 31) % vocab for at in range(tokens)] for user in range(users)]


def team_wish(users: Sequence[int]) -> dict[str, Any]:
    """Return what a peer of several users is asked besides its model: what ours is asked (`users`)."""
    prompts = make_prompts(max(users), PROMPT_TOKENS, 1000)
    return {"prompts": prompts, "users": list(users), "decoded": OUTPUT_TOKENS}


def measure_team_peers(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the speed of several users together, of the peers that are made for it. See `team_wish`."""
    return {name: _ask(name, asked, TEAM_TIMEOUT_S) for name in TEAM_PEERS}


def _ask(name: str, asked: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    command = module_command("vivace.bench.gpu.peer", name)
    try:
        done = subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"no answer within {timeout_s:.0f} s"}
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        return {"missing": words[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


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
        once()
        runs = [once() for _ in range(ROUNDS)]
    return {
        "tokens_per_s": 1e3 / statistics.median(ms for _, ms in runs),
        "first_token_ms": statistics.median(ms for ms, _ in runs),
        "version": transformers.__version__,
    }


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


def measure_llama_cpp(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure llama.cpp with the downloaded file, or with random weights: all layers on the GPU.

    As its own benchmark does: tokens are read and nobody chooses the next one.
    """
    import llama_cpp

    from vivace.config import load_settings
    from vivace.engine.devices.backend_files import find_built
    from vivace.engine.runners.ggml import find_device, load_library
    from vivace.engine.runners.llamacpp import BATCH_TOKENS, LlamaGpu, LlamaRunner

    if built := find_built(load_settings().cache_dir).get("cuda"):
        load_library(Path(built.library))
    try:
        device = find_device("cuda")
    except StartError as error:
        raise SystemExit(f"llama.cpp is not built for CUDA: {LLAMA_EXTRA}") from error
    with tempfile.TemporaryDirectory() as scratch:
        random = asked.get("shape")
        file = _write_random(random, scratch) if random else Path(asked["checkpoint"])
        gpu = LlamaGpu(device, "cuda", "cuda:0", context_tokens=4096)
        runner = LlamaRunner(file, context_tokens=4096, threads=1, gpu=gpu)
    tokens = asked["tokens"]

    def once() -> tuple[float, float]:
        """Return milliseconds to the first token, and of one later token."""
        runner.trim(0, 0)
        begun = time.perf_counter()
        for at in range(0, CONTEXT, BATCH_TOKENS):
            part = tokens[at : at + BATCH_TOKENS]
            runner.forward([Span(0, at, part, want=int(at + BATCH_TOKENS >= CONTEXT))])
        first = time.perf_counter()
        for number in range(DECODED):
            runner.forward([Span(0, CONTEXT + number, [tokens[number]], want=1)])
        return (first - begun) * 1e3, (time.perf_counter() - first) * 1e3 / DECODED

    once()
    runs = [once() for _ in range(ROUNDS)]
    return {
        "tokens_per_s": 1e3 / statistics.median(ms for _, ms in runs),
        "first_token_ms": statistics.median(ms for ms, _ in runs),
        "version": llama_cpp.__version__,
        "format": file.stem,
    }


def _write_random(name: str, folder: str) -> Path:
    """Write a file of random weights, called after its format."""
    from vivace.bench.gpu.random_gguf import MIXES, write_gguf

    mix = "MXFP4" if KNOWN_SHAPES[name].oss else "Q4_K_M"
    path = Path(folder) / f"{mix}.gguf"
    write_gguf(path, KNOWN_SHAPES[name], MIXES[mix])
    return path


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


PEERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "vllm": measure_vllm,
    "vllm_fp8": measure_vllm_fp8,
    "vllm_int4": measure_vllm_int4,
    "transformers": measure_transformers,
    "llama_cpp": measure_llama_cpp,
}

TEAM_PEERS = ("vllm", "vllm_fp8", "vllm_int4")

if __name__ == "__main__":
    print(json.dumps(PEERS[sys.argv[1]](json.load(sys.stdin))))
