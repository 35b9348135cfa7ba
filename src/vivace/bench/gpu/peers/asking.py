"""Ask vLLM, transformers and llama.cpp how fast they are, one after the other, each in a process of its own.

They have the same weights as ours, or random ones of the same shape (`"shape": NAME` in place of a
checkpoint); vLLM is also asked for the speed of several users together. Owns the wish and the answer: a peer
that is not installed, or fails, is a line in the report and not the end of it. Does not measure (a file for
each peer).
"""

import json
import statistics
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from vivace.child_python import module_command

PEERS = ("vllm", "vllm_fp8", "vllm_int4", "transformers", "llama_cpp")
TEAM_PEERS = ("vllm", "vllm_fp8", "vllm_int4")
CONTEXT, DECODED, ROUNDS = 1024, 128, 3
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 300  # of each of several users
TIMEOUT_S = 240.0
TEAM_TIMEOUT_S = 420.0


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
    command = module_command("vivace.bench.gpu.peers", name)
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


def median_figures(once: Callable[[], tuple[float, float]]) -> dict[str, Any]:
    """Return a peer's figures. `once` returns milliseconds to the first token and of a later one."""
    once()  # warms up
    runs = [once() for _ in range(ROUNDS)]
    return {
        "tokens_per_s": 1e3 / statistics.median(ms for _, ms in runs),
        "first_token_ms": statistics.median(ms for ms, _ in runs),
    }
