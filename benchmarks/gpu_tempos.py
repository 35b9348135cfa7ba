"""`vivace bench tempos` on a GPU with random weights of the true shape: no model file, no tokenizer.

    gpu_tempos.py [--quick]

Needs torch, Triton, msgspec and a GPU. The engine is this process, and who asks it a child of it, over a
socket pair as the server does. Speed depends on shapes alone, so random weights are as good as real ones;
a text may end by chance, which the table shows as fewer tokens.
"""

import argparse
import os
import random
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.progress import Progress
from vivace.bench.tempos.measure import PARTS, Effort, TempoBench, Texts

LONG = Effort(rounds=40, tokens=400, reading_tokens=16_000, seconds=(5, 60))
SHORT = Effort(rounds=5, tokens=200, reading_tokens=8000, seconds=(5, 15))
ASKED_TOKENS = 200
VOCABULARY = 1000  # tokens that prompts are drawn from


class Letters:
    end_tokens = frozenset[int]()  # no text ends before it has all its tokens

    def token_bytes(self, token: int) -> bytes:
        return bytes([token % 256])


class Attached(EngineProcess):
    """An engine that is there already, on the other end of a socket."""

    def __init__(self, link: socket.socket) -> None:
        from itertools import count

        from vivace.engine.wire.frames import server_unpacker

        self._link, self._unpacker = link, server_unpacker()
        self._turns, self._numbers, self._ready = {}, count(1), None

    def close(self) -> None:
        self._link.close()


def measure(link: socket.socket, effort: Effort) -> None:
    """Ask, in a process of its own, and print the figures."""
    chance = random.Random(7)

    def draw(tokens: int) -> list[int]:
        return [chance.randrange(5, VOCABULARY) for _ in range(tokens)]

    with Attached(link) as engine:
        found = TempoBench(engine, Texts(lambda: draw(ASKED_TOKENS), draw), effort).run(
            Progress(effort, parts=PARTS)
        )
    alone, beside = found["alone"], found["beside"]
    print(
        f"{1e3 / alone['token_ms']:.0f} tok/s alone, {1e3 / beside['token_ms']:.0f} beside four", flush=True
    )
    for name in ("token_ratio", "first_token_ratio", "background_tokens_meanwhile", "alone", "beside"):
        print(f"{name}: {found[name]}", flush=True)


def serve_random(link: socket.socket) -> None:
    """Be the engine until the other side closes."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.engine.loop.engine import Engine
    from vivace.engine.loop.link import Link
    from vivace.engine.loop.worker import serve
    from vivace.engine.runners.cuda.decode.plan import Plan, fitting_passes
    from vivace.engine.runners.cuda.kernels.driver import Modules
    from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B as SHAPE
    from vivace.engine.runners.cuda.rows.passes import batch_plans
    from vivace.engine.runners.cuda.runner import CudaRunner
    from vivace.engine.runners.cuda.weights.build import build_model, random_weights
    from vivace.engine.speculation.costs import StepCosts
    from vivace.engine.wire.frames import Ready

    begun = time.monotonic()
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    modules = Modules(None)
    sizes = fitting_passes(SHAPE, 8)
    modules.compile([*(Plan(SHAPE, 8, size, blocks) for size in sizes), *batch_plans(SHAPE, 8, blocks, 16)])
    model, dense = build_model(SHAPE, random_weights(SHAPE, 1, "cuda"), 8, "cuda", 32768)
    runner = CudaRunner(
        "random", model, dense, Letters(), bits=8, context_tokens=65536, blocks=blocks,
        make_launcher=modules.load, prefill="fp8",
    )  # fmt: skip
    runner.warm_up()
    ends = Link(link)
    engine = Engine(runner, ends.send, StepCosts(runner.known_costs()))
    print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)
    info = runner.info
    ends.send(
        Ready(
            model="random",
            context_tokens=info.context_tokens,
            trained_tokens=info.trained_tokens,
            limit_tokens=info.limit_tokens,
            yarn_factor=1.0,
            threads=1,
            load_ms=0.0,
            pid=os.getpid(),
            device="cuda",
        )
    )
    serve(engine, ends)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    effort = SHORT if parser.parse_args().quick else LONG
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        measure(theirs, effort)
        return 0
    theirs.close()
    serve_random(ours)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
