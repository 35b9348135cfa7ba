"""vLLM, llama.cpp and transformers beside our larger shapes, on a borrowed GPU that can reach nothing.

    prepare [vllm|llama]   here: a peer and what it needs, in pieces → dist/lease/vllm, dist/lease/llama
    keep                   there, once a piece
    build                  there: llama.cpp, then `vivace extras add cuda --llama-cpp`, as a user would
    run SHAPE:PEER …       there: `vivace.bench.gpu.peers` with random weights of a shape, one by one;
                           with --users that of vLLM's several users, as `vivace.bench.gpu.users` asks it

    python3 benchmarks/gpu_peers.py run qwen2.5-coder-7b:vllm gpt-oss-20b:vllm qwen2.5-coder-7b:llama_cpp
    python3 benchmarks/gpu_peers.py run qwen2.5-coder-1.5b:vllm_fp8 --users 1,2,4,8,16,32,64

A machine where they are installed needs none of this: there `vivace bench gpu --shape` asks them by itself.
vLLM wants the torch that it was built with (0.23: 2.11), which the other machine must have, and transformers.
Owns how they get there; how they are measured is `vivace.bench.gpu.peers`'.
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

from gpu_carry import LEASE, ROOT, cut, download_wheels, join, keep, unpack_wheels

VLLM, LLAMA = LEASE / "vllm", LEASE / "llama"
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
# llama.cpp's source and what builds it there; NVIDIA's compiler as `vivace extras add cuda` will ask for it.
LLAMA_WHEELS = (
    *("pip", "scikit-build-core", "pathspec", "packaging", "cmake", "ninja", "click", "msgspec", "diskcache"),
)
TOOLKIT_WHEELS = (
    *("cuda-toolkit==13.2.2", "nvidia-cuda-nvcc==13.2.86", "nvidia-nvvm==13.2.86"),
    *("nvidia-cuda-crt==13.2.86", "nvidia-cuda-cccl==13.2.86", "nvidia-cuda-runtime==13.2.86"),
    *("nvidia-cuda-nvrtc==13.2.86", "nvidia-cublas==13.4.1.3"),
)
SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
TIMEOUT_S = 400.0


def prepare(folder: Path, python: str, model: Path | None, *, has_toolkit: bool) -> None:
    """Fill the folder with piece-00 …; a small model is for the tests of llama.cpp there."""
    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / "wheels"
    if folder == VLLM:
        download_wheels(wheels, python, *WHEELS)
    else:
        wanted = (*LLAMA_WHEELS, *(() if has_toolkit else TOOLKIT_WHEELS))
        download_wheels(wheels, python, "-c", str(ROOT / "constraints.txt"), *wanted)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=llama-cpp-python"]
        pins = ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *pins, "-d", str(wheels), "llama-cpp-python"], check=True)
    whole = folder / "wheels.tar"
    with tarfile.open(whole, "w") as archive:
        archive.add(wheels, "wheels")
        if model:
            archive.add(model, "model.gguf")
    print(f"{cut(whole, folder)} pieces are in {folder}.")
    shutil.rmtree(wheels)
    whole.unlink()


def set_up(work: Path) -> Path:
    """Unpack what was carried over, once, and return the folder of its wheels."""
    whole = work / "wheels.tar"
    if not whole.exists():
        join(work, whole)
        with tarfile.open(whole) as archive:
            archive.extractall(work, filter="data")
    return work / "wheels"


def build(work: Path) -> int:
    """Build llama.cpp for the CPU, then its part for the GPU by our own command."""
    wheels, site = set_up(work), work / "site"
    tools = work / "tools"
    unpack_wheels(wheels, site, "pip", "click", "msgspec", "diskcache")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "CMAKE_BUILD_PARALLEL_LEVEL": "16"}
    os.environ |= {**offline, "PYTHONPATH": str(site)}
    begun = time.perf_counter()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target"]
    subprocess.run([*pip, str(tools), "cmake", "ninja"], check=True)
    os.environ["PATH"] = f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ["PYTHONPATH"] += f"{os.pathsep}{tools}"
    subprocess.run([*pip, str(site), "--no-deps", "llama-cpp-python"], check=True)
    print(f"llama.cpp for the CPU: {time.perf_counter() - begun:.0f} s", flush=True)
    begun = time.perf_counter()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(site), str(tools)])
    os.environ["VIVACE_CACHE_DIR"] = str(work / "cache")
    command = [sys.executable, "-m", "vivace", "extras", "add", "cuda", "--llama-cpp"]
    code = subprocess.run(command, check=False).returncode
    print(f"vivace extras add cuda --llama-cpp: {time.perf_counter() - begun:.0f} s, exit code {code}")
    return code


def run(out: Path, asked: list[str], users: list[int]) -> int:
    """Measure each, and leave all that it says in `out`. Return how many have failed."""
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for each in asked:
        begun, log = time.perf_counter(), out / f"{each.replace(':', '-')}.log"
        shape, peer = each.split(":")
        found = measure(shape, peer, log, users)
        failed += found is None
        print(
            f"{each}, {time.perf_counter() - begun:.0f} s:",
            *([found] if found else _reasons(log)),
            sep="\n  ",
        )
        sys.stdout.flush()
    return failed


def measure(shape: str, peer: str, log: Path, users: list[int]) -> str | None:
    """Return what a peer has found, or None: then the log has why."""
    from vivace.bench.gpu.peers.asking import CONTEXT, team_wish
    from vivace.bench.gpu.played import random_tokens
    from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES

    alone = {"tokens": random_tokens(KNOWN_SHAPES[shape].vocab, CONTEXT)}
    wish = json.dumps({"shape": shape, **(team_wish(users) if users else alone)})
    command = [sys.executable, "-m", "vivace.bench.gpu.peers", peer]
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
    parser.add_argument("what", choices=("prepare", "keep", "build", "run"))
    parser.add_argument("asked", nargs="*", help="vllm or llama (prepare), SHAPE:PEER (run)")
    parser.add_argument("--python", default="312", help="version of the other machine's Python (prepare)")
    parser.add_argument("--model", type=Path, help="a small GGUF for tests there (prepare llama)")
    parser.add_argument(
        "--has-toolkit", action="store_true", help="the other machine has nvcc (prepare llama)"
    )
    parser.add_argument("--work", type=Path, default=Path("/tmp/vivace-peers"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/vivace-peers/out"))
    parser.add_argument(
        "--users",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[],
        help="such as 1,2,4 (run)",
    )
    options = parser.parse_args()
    is_llama = options.asked == ["llama"]
    if options.what == "prepare":
        folder = LLAMA if is_llama else VLLM
        prepare(folder, options.python, options.model, has_toolkit=options.has_toolkit)
    elif options.what == "keep":
        for folder in (VLLM, LLAMA):
            keep(options.work / folder.name, folder)
    elif options.what == "build":
        return build(options.work / LLAMA.name)
    else:
        peers = [each.split(":")[1] for each in options.asked]
        if options.users and not all(peer.startswith("vllm") for peer in peers):
            parser.error("several users are asked of vLLM only")
        vllm, llama = options.work / VLLM.name, options.work / LLAMA.name
        if any(peer.startswith("vllm") for peer in peers):
            unpack_wheels(set_up(vllm), vllm / "site")
        paths = [str(each) for each in (ROOT / "src", vllm / "site", llama / "site") if each.exists()]
        sys.path[:0] = paths
        os.environ |= {**SETTINGS, "PYTHONPATH": os.pathsep.join(paths)}
        os.environ["VIVACE_CACHE_DIR"] = str(llama / "cache")
        return run(options.out, options.asked, options.users)
    return 0


if __name__ == "__main__":
    sys.exit(main())
