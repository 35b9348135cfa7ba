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
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_lease import LEASE, PIECE_BYTES, ROOT, download_wheels

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
    *("requests", "urllib3", "charset-normalizer", "certifi"),
    *(
        "regex",
        "setproctitle",
        "six",
        "uvloop",
        "watchfiles",
        "opentelemetry-api",
        "model-hosting-container-standards",
    ),
)
SETTINGS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
TIMEOUT_S = 400.0


def prepare(python: str) -> None:
    """Fill dist/lease/vllm with part-00 …"""
    shutil.rmtree(VLLM, ignore_errors=True)
    download_wheels(VLLM / "wheels", python, *WHEELS)
    whole = VLLM / "wheels.tar"
    with tarfile.open(whole, "w") as archive:
        archive.add(VLLM / "wheels", "wheels")
    shutil.rmtree(VLLM / "wheels")
    pieces = 0
    with whole.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            (VLLM / f"part-{pieces:02}").write_bytes(piece)
            pieces += 1
    whole.unlink()
    print(f"{pieces} pieces are in {VLLM}.")


def keep(work: Path) -> None:
    """Move the piece that was carried over to `work`; say which are there."""
    work.mkdir(parents=True, exist_ok=True)
    for piece in sorted(VLLM.glob("part-*")):
        shutil.move(piece, work / piece.name)
    print("Here:", *(piece.name[-2:] for piece in sorted(work.glob("part-*"))))


def set_up(work: Path) -> Path:
    """Unpack what was carried over, once, and return the folder of its packages."""
    site = work / "site"
    if site.exists():
        return site
    whole = work / "wheels.tar"
    with whole.open("wb") as file:
        for piece in sorted(work.glob("part-*")):
            file.write(piece.read_bytes())
    with tarfile.open(whole) as archive:
        archive.extractall(work, filter="data")
    part = work / "site.part"
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda wheel: zipfile.ZipFile(wheel).extractall(part), (work / "wheels").glob("*.whl")))
    part.rename(site)
    return site


def run(out: Path, asked: list[str]) -> int:
    """Measure each, and leave all that it says in `out`. Return how many have failed."""
    from vivace.bench.gpu.peer import CONTEXT
    from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES

    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for each in asked:
        shape, _, peer = each.partition(":")
        chance = random.Random(5)
        tokens = [chance.randrange(KNOWN_SHAPES[shape].vocab) for _ in range(CONTEXT)]
        begun, log = time.perf_counter(), out / f"{shape}-{peer}.log"
        with log.open("w") as said:
            done = subprocess.run(
                [sys.executable, "-m", "vivace.bench.gpu.peer", peer],
                input=json.dumps({"shape": shape, "tokens": tokens}),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        found = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else _reasons(log)
        failed += done.returncode != 0
        print(f"{each}, {time.perf_counter() - begun:.0f} s:", *found, sep="\n  ", flush=True)
    return failed


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
        keep(options.work)
    else:
        paths = [str(ROOT / "src"), str(set_up(options.work))]
        sys.path[:0] = paths
        os.environ |= {**SETTINGS, "PYTHONPATH": os.pathsep.join(paths)}
        return run(options.out, options.asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
