"""The process that measures one peer.

    python -m vivace.bench.gpu.peers NAME <<< '{"checkpoint": …, "tokens": […]}'
    python -m vivace.bench.gpu.peers vllm <<< '{"shape": …, "prompts": […], "users": [1, 2], "decoded": 300}'

Reads what is asked (`asking`) and prints a line of JSON. Loads the one peer alone.
"""

import json
import sys
from collections.abc import Callable
from typing import Any


def measure(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what measures a peer."""
    if name == "transformers":
        from vivace.bench.gpu.peers.transformers import measure_transformers

        return measure_transformers
    if name == "llama_cpp":
        from vivace.bench.gpu.peers.llama_cpp import measure_llama_cpp

        return measure_llama_cpp
    from vivace.bench.gpu.peers import vllm

    return {
        "vllm": vllm.measure_vllm, "vllm_fp8": vllm.measure_vllm_fp8, "vllm_int4": vllm.measure_vllm_int4
    }[name]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])(json.load(sys.stdin))))
