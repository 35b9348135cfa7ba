"""vLLM and transformers beside our larger shapes, on a borrowed GPU that can reach nothing.

    prepare                here: vLLM and what it imports, in pieces → dist/lease/vllm
    keep                   there, once a piece
    run SHAPE:PEER …       there: `vivace.bench.gpu.peer` with random weights of a shape, one after the other

    python3 benchmarks/gpu_peers.py run qwen2.5-coder-7b:vllm gpt-oss-20b:vllm

A machine where vLLM is installed needs none of this: there `vivace bench gpu --shape` asks it by itself. vLLM
wants the torch that it was built with (0.23: 2.11), which the other machine must have, with transformers.
Owns how it gets there; how it is measured is `vivace.bench.gpu.peer`'s.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from gpu_lease import LEASE, ROOT, cut, download_wheels, join, keep, unpack_wheels

VLLM = LEASE / "vllm"
# What vLLM 0.23 imports to generate from tokens, but torch, transformers and what comes with them. It runs
# without flashinfer, numba, opencv and others of its requirements, which are larger than itself.
WHEELS = (
    *("vllm==0.23.0", "compressed-tensors==0.17.0", "depyf==0.20.0", "astor", "dill", "loguru"),
    *("xgrammar==0.2.0", "apache-tvm-ffi==0.1.9", "lm-format-enforcer==0.11.3", "outlines_core==0.2.14"),
    *("llguidance<1.8", "diskcache==5.6.3", "lark==1.2.2", "interegular", "jsonschema"),
    *("jsonschema-specifications", "referencing", "rpds-py", "attrs"),
    *("openai<3", "anthropic<1", "distro", "jiter", "sniffio", "httpx", "httpcore", "h11", "anyio", "idna"),
    *("docstring-parser", "openai-harmony", "tiktoken", "mistral_common", "sentencepiece"),
    *("pydantic==2.12.5", "pydantic-core==2.41.5", "annotated-types", "typing-inspection"),
    *("pydantic-extra-types", "pycountry", "typing-extensions", "fastapi<0.137", "starlette<1"),
    *("annotated-doc", "prometheus_client", "prometheus-fastapi-instrumentator", "python-json-logger"),
    *("aiohttp", "aiosignal", "aiohappyeyeballs", "frozenlist", "multidict", "propcache", "yarl"),
    *("blake3", "cachetools", "cbor2", "cloudpickle", "einops", "gguf", "ijson", "msgspec", "ninja"),
    *("partial-json-parser", "pillow", "protobuf>=6.33.5", "psutil", "pybase64", "py-cpuinfo", "pyzmq"),
    *("requests", "urllib3", "charset-normalizer", "certifi", "regex", "setproctitle", "six", "uvloop"),
    *("watchfiles", "opentelemetry-api", "model-hosting-container-standards"),
    *("humming-kernels==0.1.4", "pyelftools", "nvidia-ml-py", "tabulate"),  # imported with any quantization
)
SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
TIMEOUT_S = 400.0


def prepare(python: str) -> None:
    """Fill dist/lease/vllm with piece-00 …"""
    shutil.rmtree(VLLM, ignore_errors=True)
    download_wheels(VLLM / "wheels", python, *WHEELS)
    whole = VLLM / "wheels.tar"
    with tarfile.open(whole, "w") as archive:
        archive.add(VLLM / "wheels", "wheels")
    print(f"{cut(whole, VLLM)} pieces are in {VLLM}.")
    shutil.rmtree(VLLM / "wheels")
    whole.unlink()


def set_up(work: Path) -> Path:
    """Unpack what was carried over, once, and return the folder of its packages."""
    whole = work / "wheels.tar"
    if not whole.exists():
        join(work, whole)
        with tarfile.open(whole) as archive:
            archive.extractall(work, filter="data")
    unpack_wheels(work / "wheels", work / "site")
    return work / "site"


def run(out: Path, asked: list[str]) -> int:
    """Measure each, and leave all that it says in `out`. Return how many have failed."""
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for each in asked:
        begun, log = time.perf_counter(), out / f"{each.replace(':', '-')}.log"
        shape, peer = each.split(":")
        found = measure(shape, peer, log)
        failed += found is None
        print(
            f"{each}, {time.perf_counter() - begun:.0f} s:",
            *([found] if found else _reasons(log)),
            sep="\n  ",
        )
        sys.stdout.flush()
    return failed


def measure(shape: str, peer: str, log: Path) -> str | None:
    """Return what a peer has found, or None: then the log has why."""
    from vivace.bench.gpu.peer import CONTEXT
    from vivace.bench.gpu.played import random_tokens
    from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES

    wish = json.dumps({"shape": shape, "tokens": random_tokens(KNOWN_SHAPES[shape].vocab, CONTEXT)})
    command = [sys.executable, "-m", "vivace.bench.gpu.peer", peer]
    with log.open("w") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        try:
            found, _ = process.communicate(wish, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            said.write(f"Error: no answer within {TIMEOUT_S:.0f} s\n")
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # vLLM's engine is a process of its own
            process.wait()
        said.write(found)  # vLLM says there which kernels it has chosen
    return found.strip().splitlines()[-1] if process.returncode == 0 else None


def _reasons(log: Path) -> list[str]:
    lines = log.read_text().splitlines()
    return [line[:300] for line in lines if "Error" in line][:6] + lines[-2:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "keep", "run"))
    parser.add_argument("asked", nargs="*", help="SHAPE:PEER (run)")
    parser.add_argument("--python", default="312", help="version of the other machine's Python (prepare)")
    parser.add_argument("--work", type=Path, default=Path("/tmp/vivace-peers"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/vivace-peers/out"))
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.python)
    elif options.what == "keep":
        keep(options.work, VLLM)
    else:
        paths = [str(ROOT / "src"), str(set_up(options.work))]
        sys.path[:0] = paths
        os.environ |= {**SETTINGS, "PYTHONPATH": os.pathsep.join(paths)}
        return run(options.out, options.asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
