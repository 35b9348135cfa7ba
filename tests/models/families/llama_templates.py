"""llama.cpp's own collection of chat templates, and its vocabularies without weights.

They come with llama-cpp-python's source package: `setup/native.py` keeps them when it compiles. Where the
wheel was there already, the package is downloaded once with the user's pip, and only these files are kept.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VOCABULARIES = ("qwen2", "qwen35", "llama-bpe", "gemma-4", "phi-3")
MEMBER = re.compile(
    rf"vendor/llama\.cpp/models/(templates/[^/]+\.jinja|ggml-vocab-(?:{'|'.join(VOCABULARIES)})\.gguf)$"
)
DOWNLOAD_S = 400


@cache
def folder() -> Path:
    """Return the folder with `templates/` and the vocabularies; skip the test where it cannot be had."""
    version = re.search(
        r"^llama[-_]cpp[-_]python==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    assert version
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache_folder = Path(os.environ.get("VIVACE_CACHE_DIR") or Path(base) / "vivace")
    found = cache_folder / "templates" / version[1]
    if not found.is_dir():
        _download(version[1], found)
    return found


def _download(version: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "llama-cpp-python",
        ]
        command += ["--dest", work, f"llama-cpp-python=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
        if done.returncode:
            pytest.skip(f"llama-cpp-python's source cannot be downloaded here: {done.stderr[-200:]}")
        [archive] = Path(work).glob("*.tar.gz")
        kept = Path(work) / "kept"
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and (match := MEMBER.search(member.name)):
                    path = kept / match[1]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    content = tar.extractfile(member)
                    assert content
                    path.write_bytes(content.read())
        if not target.exists():
            kept.rename(target)


def names() -> list[str]:
    """Return the templates' names. Without a download: those that are known."""
    return sorted(LISTED)


def source(name: str) -> str:
    return (folder() / "templates" / f"{name}.jinja").read_text("utf-8")


def vocabulary(name: str) -> Path:
    return folder() / f"ggml-vocab-{name}.gguf"


LISTED = (
    "Apertus-8B-Instruct",
    "Apriel-1.6-15b-Thinker-fixed",
    "Bielik-11B-v3.0-Instruct",
    "ByteDance-Seed-OSS",
    "Cohere2MoE",
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "GLM-4.6",
    "GLM-4.7-Flash",
    "GigaChat3-10B-A1.8B",
    "GigaChat3.1-10B-A1.8B",
    "HuggingFaceTB-SmolLM3-3B",
    "Kimi-K2-Instruct",
    "Kimi-K2-Thinking",
    "Kimi-K3",
    "LFM2-8B-A1B",
    "LFM2.5-8B-A1B",
    "LFM2.5-Instruct",
    "MiMo-VL",
    "MiniMax-M1",
    "MiniMax-M2",
    "MiniMax-M3",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "NVIDIA-Nemotron-Nano-v2",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "Reka-Edge",
    "Spark2.5",
    "StepFun3.5-Flash",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "deepseek-ai-DeepSeek-V4",
    "fireworks-ai-llama-3-firefunction-v2",
    "google-gemma-2-2b-it",
    "google-gemma-4-31B-it-interleaved",
    "google-gemma-4-31B-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "ibm-granite-granite-4.0",
    "ibm-granite-granite-4.1",
    "inclusionai-ling-3.0-flash",
    "llama-cpp-deepseek-r1",
    "llama-cpp-rwkv-world",
    "meetkai-functionary-medium-v3.1",
    "meetkai-functionary-medium-v3.2",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "muse-glimmer",
    "openai-gpt-oss-120b",
    "openbmb-MiniCPM5-1B",
    "poolside-Laguna-S-2.1",
    "poolside-Laguna-XS-2.1",
    "poolside-Laguna-XS.2",
    "tencent-Hy3",
    "unsloth-Apriel-1.5",
    "unsloth-mistral-Devstral-Small-2507",
    "upstage-Solar-Open-100B",
)
