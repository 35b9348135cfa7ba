"""`vivace bench gpu`: how fast one GPU serves one user, through the engine, beside what else is installed.

    python -m vivace.bench.gpu.run --checkpoint FILE [--material FILE] [--bits 4,8,16] [--kv-bits 8] [--json]

is the same without the command line's packages. Owns the order and the report; `gpu_measures` asks, and
`peers` measures others. Every key of the JSON is explained in docs/gpu-notes.md.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.figures import rounded
from vivace.bench.gpu.device import describe_gpu, describe_versions, measure_bandwidth
from vivace.bench.gpu.material import Material, load_material, make_material
from vivace.bench.gpu.measures import (
    CONTEXTS,
    NEW_TOKENS,
    GpuBench,
    Section,
    measure_decode,
    measure_edits,
    measure_first_token,
    measure_steer,
    measure_stop,
)
from vivace.bench.gpu.peers.asking import measure_peers
from vivace.bench.gpu.report import judge, table
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.gpu_check import check_gpu, detect_gpu
from vivace.engine.wire.job import Job
from vivace.errors import VivaceError

CONTEXT_TOKENS = 49_152


def run_gpu_bench(
    checkpoint: Path,
    *,
    gpu_folder: Path,
    material: Path | None = None,
    data: Path | None = None,
    bits: Sequence[int] = (8, 16),
    kv_bits: int = 16,
    has_peers: bool = True,
    prefill: str = "",
) -> dict[str, Any]:
    """Measure everything; `StartError` where there is no GPU that can."""
    check_gpu(detect_gpu())
    what = load_material(material) if material else make_material(checkpoint, data)
    report: dict[str, Any] = {
        "gpu": describe_gpu(),
        "versions": describe_versions(),
        "weights": checkpoint.name,
        "kv_bits": kv_bits,
        "edits_from": what.source,
        "bandwidth": measure_bandwidth(),
    }
    for each in bits:
        job = make_job(checkpoint, gpu_folder, each, prefill, kv_bits)
        report[f"{each}-bit"] = _measure_format(job, what, report["bandwidth"]["copy_tb_s"])
    report["peers"] = measure_peers({"checkpoint": str(checkpoint), "tokens": what.code}) if has_peers else {}
    report = rounded(report)
    report["passed"] = judge(report)
    return report


def make_job(checkpoint: Path, gpu_folder: Path, bits: int, prefill: str = "", kv_bits: int = 16) -> Job:
    return Job(
        model=checkpoint.stem,
        path=str(checkpoint),
        context_tokens=CONTEXT_TOKENS,
        gpu_context_tokens=CONTEXT_TOKENS,
        device="cuda",
        weight_bits=bits,
        kv_bits=kv_bits,
        gpu_folder=str(gpu_folder),
        gpu_prefill=prefill,
    )


def _measure_format(job: Job, material: Material, copy_tb_s: float) -> Section:
    from vivace.engine.runners.cuda.weights.checkpoint import describe

    token_bytes = bytes_per_token(describe(Path(job.path)), job.weight_bits)
    with EngineProcess(job) as engine:
        bench = GpuBench(engine, material)
        _say(f"{job.weight_bits}-bit: decode")
        decode = {str(context): measure_decode(bench, context) for context in CONTEXTS}
        for section in decode.values():
            section["share_of_copy_bandwidth"] = section["tokens_per_s"] * token_bytes / 1e12 / copy_tb_s
        _say(f"{job.weight_bits}-bit: first tokens, steers")
        first = {str(count): measure_first_token(bench, count) for count in NEW_TOKENS}
        steer = measure_steer(bench)
        _say(f"{job.weight_bits}-bit: edits")
        return {
            "weight_bytes_per_token": token_bytes,
            "decode": decode,
            "first_token_ms": first,
            "steer": steer,
            "stop_in_prefill_ms": measure_stop(bench),
            "edits": measure_edits(bench),
        }


def bytes_per_token(shape: Shape, bits: int) -> int:
    """Return the bytes of weights that one token reads: all but the embedding table."""
    head = shape.vocab * shape.hidden
    layers = shape.parameters - 2 * head
    if bits == 4:  # and two bytes for every 32; the head in 8 bits
        return layers * 9 // 16 + head
    return (layers + head) * bits // 8


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vivace.bench.gpu.run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--gpu-folder", type=Path, required=True, help="where compiled kernels are kept")
    parser.add_argument("--material", type=Path, help="tokens made by benchmarks/gpu_lease.py prepare")
    parser.add_argument("--data", type=Path, help="folder with commit_edits.jsonl")
    parser.add_argument("--bits", default="8,16")
    parser.add_argument("--kv-bits", type=int, choices=(16, 8), default=16)
    parser.add_argument("--prefill", choices=("bf16", "fp8"), default="")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        report = run_gpu_bench(
            options.checkpoint,
            gpu_folder=options.gpu_folder,
            material=options.material,
            data=options.data,
            bits=[int(each) for each in options.bits.split(",")],
            kv_bits=options.kv_bits,
            has_peers=not options.no_peers,
            prefill=options.prefill,
        )
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
