"""HumanEvalFix through the engine: how many of 164 broken functions the model mends, by weight format.

Owns the prompt, the running of what the model wrote (a process of its own with limits on time, memory and
files, in an empty folder) and the count. Needs the rows (bigcode-project/octopack, MIT) and a GPU.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.gpu.run import make_job
from vivace.engine.runners.cuda.model.vocabulary import GgufVocabulary
from vivace.engine.runners.cuda.weights.gguf_file import GgufFile
from vivace.engine.wire.frames import Generate

TIME_S = 10.0
MOST_TOKENS = 600
LIMITED = """
import resource, sys
for name, value in {"CPU": 8, "AS": 2 << 30, "FSIZE": 1 << 20, "CORE": 0, "NOFILE": 64}.items():
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
exec(compile(sys.stdin.read(), "candidate", "exec"), {"__name__": "candidate"})
"""


class Broken(msgspec.Struct, frozen=True):
    """A function to be mended, already tokenized."""

    name: str
    prompt: list[int]
    prediction: list[int]
    begin: str  # the program up to where the model goes on
    end: str  # what tests it


def make_broken(rows: Path, model: Path) -> list[Broken]:
    from vivace.models.families.base import Message
    from vivace.models.families.qwen25 import Qwen25
    from vivace.models.tokenizer import GgufTokenizer

    tokenizer = GgufTokenizer(model)
    template = Qwen25(tokenizer)
    found = []
    for row in map(json.loads, rows.read_text("utf-8").splitlines()):
        code = row["declaration"] + row["buggy_solution"]
        asked = f"Fix bugs in {row['entry_point']}.\n\n```python\n{code}\n{row['test'].strip()}\n```"
        opened = f"```python\n{row['declaration']}"
        prompt = template.render([Message("user", asked), Message("assistant", opened, is_open=True)])
        found.append(
            Broken(
                row["task_id"],
                prompt,
                tokenizer.encode(row["buggy_solution"] + "```"),
                row["declaration"],
                f"\n{row['test']}\ncheck({row['entry_point']})\n",
            )
        )
    return found


def measure_fixes(
    rows: Sequence[Broken],
    checkpoint: Path,
    gpu_folder: Path,
    bits: int,
    prefill: str = "",
    kv_bits: int = 16,
) -> dict[str, float | list[str]]:
    """Share of the functions whose tests pass, greedily, at the first try."""
    file = GgufFile(checkpoint)
    words = GgufVocabulary(file.fields, checkpoint.name)
    file.close()
    programs = []
    job = msgspec.structs.replace(make_job(checkpoint, gpu_folder, bits, prefill), kv_bits=kv_bits)
    with EngineProcess(job) as engine:
        for row in rows:
            with engine.session(tenant=row.name) as session:
                work = Generate(session, "", list(row.prompt), max_tokens=MOST_TOKENS, stop=["```"])
                work.prediction = row.prediction
                turn = engine.run(work)
            text = b"".join(map(words.token_bytes, turn.tokens)).decode("utf-8", "replace")
            programs.append(row.begin + text.split("```")[0] + row.end)
    with ThreadPoolExecutor(8) as threads:
        passed = list(threads.map(does_pass, programs))
    failed = [row.name for row, is_right in zip(rows, passed, strict=True) if not is_right]
    return {"score": 100 * sum(passed) / len(passed), "rows": float(len(rows)), "failed": failed}


def does_pass(program: str) -> bool:
    """Return whether the program exits with 0. Its output is not read."""
    with tempfile.TemporaryDirectory(prefix="candidate-") as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", LIMITED],
                input=program.encode("utf-8", "replace"),
                cwd=folder,
                env={},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TIME_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0
