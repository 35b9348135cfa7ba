"""Edits and requests of a borrowed GPU, through the server, at every effort. Stages of `gpu_lease.py`.

The server there has no llama.cpp and so cannot read a GGUF file's vocabulary: the file is made into a folder
as Hugging Face has it. There is no bubblewrap either: `no_walls` takes its place while answers are chosen,
and the verdicts are left to `vivace eval edits --score FILE` and `vivace eval requests --score FILE` on a
machine with a sandbox. Owns the folder, what requests need there, and the order of the runs.
"""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETS = ("humanevalfix", "humanevalfix-doc", "editeval")
EFFORTS = ("low", "medium", "high", "xhigh")
AT_ONCE = 16
REQUEST_WAYS = ("medium", "low", "tasks:medium", "high")  # what matters most comes first
REQUESTS_S = 400.0  # for all of them: what is answered until then is brought back


def make_folder(checkpoint: Path, folder: Path) -> None:
    """Write the file's weights and vocabulary as a folder of safetensors."""
    from safetensors.torch import save_file  # type: ignore[import-not-found,unused-ignore]

    from tests.folders import BYTES, SPLIT, write_gguf_vocabulary
    from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint

    folder.mkdir(parents=True)
    write_gguf_vocabulary(checkpoint, folder, [SPLIT, BYTES])
    shape, weights = read_checkpoint(checkpoint)
    has_head = "lm_head.weight" in weights
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.trained_tokens,
        "vocab_size": shape.vocab,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_epsilon,
        "hidden_act": "silu",
        "tie_word_embeddings": not has_head,
        "use_sliding_window": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    stored = {
        name if name == "lm_head.weight" else f"model.{name}": each.contiguous().cpu()
        for name, each in weights.items()
    }
    save_file(stored, str(folder / "model.safetensors"))


def answer_sets(
    folder: Path,
    data: Path,
    results: Path,
    work: Path,
    ways: list[str],
    how: tuple[str, ...] = ("--at-once", str(AT_ONCE)),
) -> int:
    """Answer the tasks through a server of our own. Return the worst exit code. What is done is kept.

    `ways` are efforts, `bare`, or SET:EFFORT for one set alone; `how`: more options of `vivace eval edits`.
    """
    environment = _environment(work)
    worst = 0
    for way in ways or ["bare", *EFFORTS]:
        only, _, effort = way.rpartition(":")
        for name in [only] if only else SETS:
            command = [sys.executable, "-m", "vivace", "eval", "edits", "--set", name, "--model", str(folder)]
            command += ["--bare"] if effort == "bare" else ["--effort", effort]
            command += ["--data", str(data), "--results", str(results), "--no-score", *how]
            print(f"-- {name} {effort}", flush=True)
            worst = max(worst, subprocess.run(command, env=environment, check=False).returncode)
    return worst


# ---- requests ---------------------------------------------------------------------------------------


def prepare_requests(things: Path, tasks: Path | None) -> None:
    """Carry the source packages that requests are about, and repository tasks if a folder has them."""
    from vivace.eval.requests.requests import read_projects
    from vivace.eval.requests.trees import fetch_projects

    fetch_projects(read_projects(), things / "evals" / "sdists", print)
    if tasks:
        shutil.copytree(tasks, things / "repotasks", dirs_exist_ok=True)


def answer_requests(model: str, things: Path, out: Path, work: Path, ways: list[str], *how: str) -> list[str]:
    """Answer requests through a server of our own. Return how each way ended.

    `ways` are efforts, or `tasks:EFFORT` for repository tasks. What is answered when the time is
    over is kept, and lies packed in `out`.
    """
    environment, until, ended = _environment(work), time.monotonic() + REQUESTS_S, []
    for way in ways or REQUEST_WAYS:
        if time.monotonic() > until:
            ended.append(f"{way}: no time was left")
            continue
        kind, _, effort = way.rpartition(":")
        results = work / f"{kind or 'requests'}.jsonl"
        command = [sys.executable, "-m", "vivace", "eval", "requests", "--model", model, "--effort", effort]
        command += ["--tasks", str(things / "repotasks")] if kind else ["--data", str(things / "evals")]
        command += ["--results", str(results), "--no-score", "--at-once", str(AT_ONCE), *how]
        begun = time.monotonic()
        code = _run_until(command, environment, until)
        ended.append(f"{way}: exit code {code} after {time.monotonic() - begun:.0f} s")
        print(f"-- {ended[-1]}", flush=True)
        if results.exists():
            with results.open("rb") as answers, gzip.open(out / f"{results.name}.gz", "wb") as packed:
                shutil.copyfileobj(answers, packed)
    return ended


def _run_until(command: list[str], environment: dict[str, str], until: float) -> int:
    """Run a command. When the time is over interrupt it as Ctrl-C would: it reports and ends."""
    process = subprocess.Popen(command, env=environment)
    try:
        return process.wait(max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return process.wait(30)
    finally:
        process.kill()


def _environment(work: Path) -> dict[str, str]:
    """Return what Vivace runs with there: folders of its own, and no walls around candidates."""
    state = {name: str(work / "vivace" / name.lower()) for name in ("CACHE_DIR", "STATE_DIR")}
    environment = os.environ | {f"VIVACE_{name}": value for name, value in state.items()}
    return environment | {
        "PATH": f"{ROOT / 'benchmarks' / 'no_walls'}:{os.environ['PATH']}",
        "VIVACE_TUNE": "never",
    }
