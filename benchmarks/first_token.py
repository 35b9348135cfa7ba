"""From Enter to the first token, with a warm server: what Vivace adds to the prefill of the new tokens.

    .venv/bin/python benchmarks/first_token.py [--model NAME] [--rounds N] [--json]

For prompts of several lengths, each fresh, it times the first token as the client sees it over the open
WebSocket, and takes the engine's own prefill away: what is left is ours. In the same run, interleaved, the
same prompts go through llama-cpp-python's own high-level class in this process, same file, same threads.
Also: the engine's work outside llama.cpp per decode step, and what a whole `vivace ask` process adds.
"""

import argparse
import asyncio
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.config import Settings, load_settings
from vivace.engine.tuning.cpu import choose_threads, cpu_features
from vivace.models.download import ensure
from vivace.models.progress import Silent
from vivace.protocol.shapes.events import OutputTextDelta, ResponseCompleted, ResponseIncomplete, Waterfall

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "list",
    "sort",
    "file",
    "name",
    "value",
    "index",
    "count",
    "total",
    "close",
]
LENGTHS = (20, 100, 300)
OUTPUT_TOKENS = 24


def fresh_prompt(words: int) -> str:
    return "Continue: " + " ".join(random.choice(WORDS) for _ in range(words))


async def ours(client: ResponsesClient, model: str, prompt: str) -> tuple[float, Waterfall]:
    """Return milliseconds to the first token at the client, and the server's times of the turn."""
    began, first = time.perf_counter(), 0.0
    body = {"model": model, "input": prompt, "max_output_tokens": OUTPUT_TOKENS, "temperature": 0}
    async for event in client.stream(body):
        match event:
            case OutputTextDelta():
                first = first or (time.perf_counter() - began) * 1e3
            case ResponseCompleted(response=response) | ResponseIncomplete(response=response):
                assert response.vivace
                assert response.vivace.waterfall
                return first, response.vivace.waterfall
    raise AssertionError("no terminal event")


def plain(llama: Any, prompt: str) -> float:
    """Return milliseconds to the first token of llama-cpp-python's high-level class."""
    began = time.perf_counter()
    messages = [{"role": "user", "content": prompt}]
    chunks = llama.create_chat_completion(messages, max_tokens=OUTPUT_TOKENS, temperature=0, stream=True)
    first = 0.0
    for chunk in chunks:
        if chunk["choices"][0]["delta"].get("content"):
            first = first or (time.perf_counter() - began) * 1e3
    return first


def process_ms(model: str) -> float:
    """Return milliseconds that a `vivace ask` process adds, from its start to the first byte."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "vivace", "ask", "Say yes.", "--model", model, "--verbose"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        process.stdout.read(1)
        first = (time.perf_counter() - began) * 1e3
        shown = process.stdout.read().decode()
    row = next(line for line in shown.splitlines() if "first token " in line and "·" not in line)
    value, unit = row.replace("\x1b[0m", "").split()[-2:]
    return first - float(value) * (1e3 if unit == "s" else 1)


async def measure(settings: Settings, rounds: int) -> dict[str, Any]:
    from llama_cpp import Llama

    path = ensure(settings, settings.model, Silent())
    threads = choose_threads(settings.threads)
    llama = Llama(str(path), n_ctx=4096, n_threads=threads, n_threads_batch=threads, verbose=False)
    rows = []
    async with ResponsesClient(ensure_server(settings)) as client:
        await ours(client, settings.model, "Wake up.")
        plain(llama, "Wake up.")
        for words in LENGTHS:
            mine, theirs = [], []
            for _ in range(rounds):
                prompt = fresh_prompt(words)
                mine.append(await ours(client, settings.model, prompt))
                theirs.append(plain(llama, prompt))
            rows.append(_row(mine, theirs))
    processes = [process_ms(settings.model) for _ in range(rounds)]
    overheads = [row.pop("engine_share") for row in rows]
    return {
        "model": settings.model,
        "cpu": f"{platform.machine()} {' '.join(cpu_features())}",
        "threads": threads,
        "first_token": rows,
        "engine_share_of_step": max(overheads),
        "process_ms": statistics.median(processes),
    }


def _row(mine: list[tuple[float, Waterfall]], theirs: list[float]) -> dict[str, Any]:
    turns = [turn for _, turn in mine]
    added = [first - turn.prefill_ms for first, turn in mine]
    return {
        "new_tokens": round(statistics.median(turn.new_tokens for turn in turns)),
        "first_token_ms": statistics.median(first for first, _ in mine),
        "prefill_ms": statistics.median(turn.prefill_ms for turn in turns),
        "added_ms": statistics.median(added),
        "peer_first_token_ms": statistics.median(theirs),
        "engine_share": statistics.median(t.overhead_ms / (t.prefill_ms + t.decode_ms) for t in turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    settings = load_settings().having(model=args.model)
    result = asyncio.run(measure(settings, args.rounds))
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['model']}, {result['threads']} threads, {result['cpu']}")
    print(
        f"{'new tokens':>10} {'first token':>12} {'prefill':>10} {'added by us':>12} {'plain llama.cpp':>16}"
    )
    for row in result["first_token"]:
        print(
            f"{row['new_tokens']:>10} {row['first_token_ms']:>9.1f} ms {row['prefill_ms']:>7.1f} ms"
            f" {row['added_ms']:>9.1f} ms {row['peer_first_token_ms']:>13.1f} ms"
        )
    print(f"engine outside llama.cpp: {result['engine_share_of_step']:.2%} of a step")
    print(f"a `vivace ask` process adds {result['process_ms']:.0f} ms (Python, imports, connecting)")


if __name__ == "__main__":
    main()
