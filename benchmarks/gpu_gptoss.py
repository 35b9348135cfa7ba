"""gpt-oss-20b on a GPU, with random weights of the true shape: the same as transformers, and how fast.

    gpu_gptoss.py                        all stages, in under 5 minutes
    gpu_gptoss.py right                  some of them

right    a layer of the true shape against transformers in fp32 with the same weights, attention and head
         rounded to 8 bits: 49 tokens one by one behind a prompt of 199, with a window and without. Experts,
         logits and likeliest tokens; 16 tokens of a pass against single ones, to the bit
step     microseconds of one token at 1k, and of each kernel
without  how much shorter the step is without one of its kernels
variants the step with other cuts of the work
several  passes of 8 and 16 tokens with other cuts of the experts' work
groups   passes where tokens that share an expert are a group of 2, 4 or 8
passes   passes of 2 to 16 tokens at 1k
prefill  prompts of 64 to 4,096 tokens, the longest time until one can be stopped, and kernels of 1,024
cuts     a layer's experts of 64 to 4,096 tokens of a prompt, with other cuts of the work

Needs torch and a GPU, `right` also transformers. Nothing of the engine is in the times. A stage that fails
costs the others nothing. Nothing new is begun after `--limit-s`.
"""

import argparse
import functools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]

import gpu_experts
from gpu_attempt import attempt
from gpu_experts import CONTEXT, SIZES, Bench, kernels, time_several, time_variants, timed
from gpu_prompts import read_prompts, time_cuts
from vivace.bench.gpu.passes import PAGES
from vivace.bench.gpu.peers.transformers import transformers_config
from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import Module, architecture, compile_source, source
from vivace.engine.runners.cuda.model.mixture import choose_experts
from vivace.engine.runners.cuda.model.oss import widen_mxfp4
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape
from vivace.engine.runners.cuda.prefill.experts import ExpertPrefill
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.runners.cuda.weights.build import build_model
from vivace.engine.runners.cuda.weights.layout import round_to_8_bits
from vivace.engine.runners.cuda.weights.oss import random_oss_weights

SHAPE = KNOWN_SHAPES["gpt-oss-20b"]
BITS = 8  # of all weights but the experts'
MUST, AIM = 700, 1100  # tok/s of one user at 1k
PROMPT, STEPS = 200, 48
CLOSE = 0.02  # of logits
CLEAR = (
    0.15  # scores of the router between the last expert that is chosen and the next: else rounding decides
)


VARIANTS: list[dict[str, Any]] = [
    {"tiles_at_once": 2, "expert_up_kb": 110},
    {"tiles_at_once": 2, "expert_up_kb": 122},
    {"tiles_at_once": 2, "expert_up_kb": 134},
    {"tiles_at_once": 4, "expert_up_kb": 146},
    {"tiles_at_once": 2, "expert_up_kb": 180},
    {"tiles_at_once": 2, "expert_up_kb": 110, "expert_part_warps": 1},
    {"tiles_at_once": 2, "expert_up_kb": 110, "expert_part_warps": 5, "expert_down_registers": 64},
    {"tiles_at_once": 2, "expert_up_kb": 110, "expert_down_stages": 1},
    {"tiles_at_once": 2, "expert_up_kb": 98, "expert_down_stages": 1, "expert_blocks": 2},
    {"tiles_at_once": 2, "expert_up_kb": 110, "takes_all_shared": True},
    {"tiles_at_once": 2, "expert_up_kb": 110, "late_start": 0b11000},
    {"tiles_at_once": 2, "expert_up_kb": 110, "expert_up_blocks": 1},
    {"tiles_at_once": 2, "expert_up_kb": 110, "expert_early_x": True},
    {"tiles_at_once": 2, "expert_up_kb": 110, "expert_later_kb": 4096},
]


SEVERAL: list[dict[str, Any]] = [
    {"tiles_at_once": 2},
    {"tiles_at_once": 2, "expert_up_kb": 62},
    {"tiles_at_once": 2, "expert_up_kb": 62, "expert_down_stages": 1},
    {"tiles_at_once": 2, "expert_down_stages": 1},
    {"tiles_at_once": 2, "expert_down_stages": 2},
    {"tiles_at_once": 2, "expert_down_stages": 2, "expert_up_kb": 98},
    {"tiles_at_once": 2, "expert_down_stages": 2, "expert_up_kb": 110, "expert_blocks": 1},
    {"tiles_at_once": 2, "expert_down_stages": 2, "expert_up_kb": 110},
]


class OssBench(Bench):
    variants = VARIANTS

    def make_model(self) -> Any:
        """Build the whole model as a file's would be; keep what a prefill reads."""
        model, self.dense = build_model(
            self.shape, random_oss_weights(self.shape, 1, "cuda"), self.bits, "cuda", PAGES * 64
        )
        return model


def transformers_model(shape: Shape, weights: StateDict) -> Any:
    """Return transformers' model with the same weights, in fp32."""
    import transformers  # type: ignore[import-not-found,unused-ignore]

    config = transformers_config(shape)
    with torch.device("meta"):
        model = transformers.GptOssForCausalLM(config)
    named = {}
    for name, rows in weights.items():
        own = name.removesuffix("_blocks")
        if name.endswith("_blocks"):
            rows = widen_mxfp4(rows, weights[f"{own}_scales"]).transpose(1, 2).contiguous()
        if not name.endswith("_scales"):
            named[own if own == "lm_head.weight" else f"model.{own}"] = rows.float()
    model.load_state_dict(named, assign=True)
    table = type(model.model.rotary_emb)(config)  # is no weight
    model.model.rotary_emb = table.to(weights["norm.weight"].device)
    return model.eval()


def rounded(weights: StateDict) -> StateDict:
    """Return the weights as the kernels have them: what rounding to 8 bits costs is not a kernel's fault."""
    found = StateDict(weights)
    for name, rows in weights.items():
        if "_proj.weight" in name or name == "lm_head.weight":
            values, scales = round_to_8_bits(rows)
            found[name] = values.float() * scales[:, None]
    return found


def right() -> str:
    """Compare a layer with its window, and one that sees all: what its experts say changes no key."""
    return "".join(f"\n    window {window}: {_one_layer(window)}" for window in (128, 1024))


def _one_layer(window: int) -> str:
    assert SHAPE.oss
    shape = replace(SHAPE, layers=1, oss=replace(SHAPE.oss, window=window))
    weights, count = random_oss_weights(shape, 1, "cuda"), shape.experts_per_token
    tokens = torch.randint(0, shape.vocab, (PROMPT + STEPS,), generator=torch.Generator().manual_seed(1))
    ours, chosen, together = _say(shape, weights, tokens.tolist())
    theirs, routed = transformers_model(shape, rounded(weights)), list[torch.Tensor]()
    theirs.model.layers[0].mlp.router.register_forward_hook(lambda _m, _i, out: routed.append(out[0]))
    with torch.inference_mode():
        wanted = theirs(tokens[None].cuda()).logits[0, PROMPT - 1 :].float().cpu()
    scores = routed[0][PROMPT - 1 :].float().cpu()
    best = scores.sort(dim=1, descending=True)[0]
    is_clear = best[:, count - 1] - best[:, count] > CLEAR
    is_same = (scores.topk(count)[1].sort(dim=1)[0] == chosen).all(1)
    mine, clear = ours[is_same], wanted[is_same]
    error = float((mine - clear).norm() / clear.norm())
    below = clear.amax(1) - clear.gather(1, mine.argmax(1, keepdim=True))[:, 0]
    return (
        f"{int(is_same.sum())} of {len(ours)} tokens have its experts, of those with a clear choice "
        f"{int(is_same[is_clear].sum())} of {int(is_clear.sum())}; logits {error:.4f} from its own in fp32 "
        f"({'fine' if error < CLOSE else 'TOO FAR'}), likeliest at most {float(below.max()):.2f} below "
        f"its own; 16 together {'the same to the bit' if torch.equal(together, ours[1:17]) else 'DIFFERENT'}"
    )


def _say(
    shape: Shape, weights: StateDict, said: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the logits of a prompt and of tokens behind it, their experts, and logits of 16 in one pass."""
    plans = [Plan(shape, BITS, size, _blocks()) for size in (1, 2, 4, 8, 16, 32)]
    with ThreadPoolExecutor(16) as threads:
        compiled = threads.map(lambda plan: compile_source(source(plan), architecture()), plans)
        images = dict(zip(plans, compiled, strict=True))
    model, dense = build_model(shape, weights, BITS, "cuda", 1024)
    runner = CudaRunner(
        "gpt-oss", model, dense, _NoWords(), bits=BITS, context_tokens=1024, blocks=_blocks(), max_rows=2,
        make_launcher=lambda plan: Module(plan, image=images.get(plan, b"")),
    )  # fmt: skip
    runner.forward([Span(0, 0, said[: PROMPT - 1], want=0)])
    found, chosen = [], []
    for at in range(PROMPT - 1, PROMPT + STEPS):
        found.append(torch.tensor(runner.forward([Span(0, at, said[at : at + 1], want=1)])).clone())
        scores = runner._passes.pass_of_size(1).buffers.scores[:1]
        chosen.append(choose_experts(scores, shape.experts_per_token)[0].sort()[0].cpu())
    runner.trim(0, PROMPT)
    together = torch.tensor(runner.forward([Span(0, PROMPT, said[PROMPT : PROMPT + 16], want=16)]))
    return torch.cat(found), torch.cat(chosen), together


class _NoWords:
    end_tokens: frozenset[int] = frozenset()

    def token_bytes(self, _token: int) -> bytes:
        return b""


def _blocks() -> int:
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def step(bench: Bench) -> str:
    us = bench.step_us(bench.plan(1))
    return f"{us:7.1f} µs, {1e6 / us:5.0f} tok/s (must {MUST}, aim {AIM}){kernels(bench, bench.plan(1))}"


def prefill(bench: OssBench) -> str:
    pages = torch.arange(PAGES, dtype=torch.int32, device="cuda")
    reader = ExpertPrefill(bench.model, bench.dense, bench.kv, pages, bench.load(bench.plan(1)))
    return read_prompts(reader, bench.shape.vocab)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="*", default=["right", "step", "passes", "prefill", "without"])
    parser.add_argument("--limit-s", type=float, default=240.0)
    options = parser.parse_args()
    until = time.monotonic() + options.limit_s
    if "right" in options.stages:
        attempt("right", right, until)
        torch.cuda.empty_cache()
    if options.stages == ["right"]:
        return
    bench = OssBench(SHAPE, BITS, options.stages)
    print(f"{torch.cuda.get_device_name()}, {CONTEXT} tokens, experts in MXFP4, the rest in {BITS} bits")
    stages: dict[str, Any] = {"step": step, "prefill": prefill, "without": gpu_experts.without}
    for stage in options.stages:
        if stage in stages:
            attempt(stage, functools.partial(stages[stage], bench), until)
        if stage == "variants":
            time_variants(bench, until)
        if stage == "several":
            time_several(bench, SEVERAL, until)
        if stage == "groups":
            gpu_experts.time_groups(bench, until)
        if stage == "cuts":
            time_cuts(bench.model, until)
        for size in SIZES if stage == "passes" else ():
            attempt(f"{size} tokens", functools.partial(timed, bench, bench.plan(size)), until)


if __name__ == "__main__":
    main()
