"""Edits of a borrowed GPU, through the server: every set at every effort. A stage of `gpu_lease.py`.

The server there has no llama.cpp and so cannot read a GGUF file's vocabulary: the file is made into a folder
as Hugging Face has it. There is no bubblewrap either: `no_walls` takes its place while answers are chosen,
and the verdicts are left to `vivace eval edits --score FILE` on a machine with a sandbox. Owns the folder and
the order of the runs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETS = ("humanevalfix", "humanevalfix-doc", "editeval")
EFFORTS = ("low", "medium", "high", "xhigh")
AT_ONCE = 16


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
    state = {name: str(work / "vivace" / name.lower()) for name in ("CACHE_DIR", "STATE_DIR")}
    environment = os.environ | {f"VIVACE_{name}": value for name, value in state.items()}
    environment |= {
        "PATH": f"{ROOT / 'benchmarks' / 'no_walls'}:{os.environ['PATH']}",
        "VIVACE_TUNE": "never",
    }
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
