"""Half an hour on a borrowed GPU: everything that is claimed of the GPU engine, in one go.

    prepare           here: weights in pieces, wheels, tokens → dist/lease
    keep              there, once a piece: joins what was carried over
    run [STAGE …]     there: all stages, or those named; one summary at the end

For a machine that has torch with CUDA, transformers and safetensors, and can reach nothing: what else is
needed (msgspec, gguf, pytest, what the server needs; for its Python) is carried as wheels. Owns the order and
the stages; measures nothing itself. How things get there is `gpu_carry`'s; the exact sequence is in
docs/gpu-notes.md.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_carry import LEASE, ROOT, cut, download_wheels, join, keep, unpack_wheels

LANGUAGES = ("bash", "c", "cpp", "go", "java", "javascript", "python", "rust", "typescript")
WHEELS = (
    *("msgspec", "gguf", "click", "llguidance", "pytest", "pluggy", "iniconfig", "packaging"),
    *("pytest-timeout", "pytest-asyncio", "pytest-xdist", "execnet", "hypothesis", "sortedcontainers"),
    *("starlette", "uvicorn", "h11", "anyio", "idna", "websockets", "uvloop", "tree-sitter"),
    *(f"tree-sitter-{name}" for name in LANGUAGES),
)
TESTS_S = 480.0


# ---- here ------------------------------------------------------------------------------------------


def prepare(model: Path | None, data: Path, python: str, tasks: Path | None) -> None:
    """Fill dist/lease: `things` with wheels and requests; with a model piece-00 …, its checksum, tokens."""
    things = LEASE / "things"
    things.mkdir(parents=True, exist_ok=True)
    download_wheels(things / "wheels", python, "-c", str(ROOT / "constraints.txt"), *WHEELS)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from gpu_edits import prepare_requests  # type: ignore[import-not-found,unused-ignore]

    prepare_requests(things, tasks)
    pieces = _prepare_model(model, data, things) if model else 0
    print(f"{pieces} pieces and {_size(things) >> 20} MiB of other things are in {LEASE}.")


def _prepare_model(model: Path, data: Path, things: Path) -> int:
    """Return how many pieces the model has."""
    import msgspec

    from gpu_fix import make_broken  # type: ignore[import-not-found,unused-ignore]
    from gpu_long import make_long  # type: ignore[import-not-found,unused-ignore]
    from vivace.bench.gpu.material import make_material, save_material

    pieces = cut(model, LEASE)
    save_material(make_material(model, data), things / "material.json")
    broken = make_broken(data / "humanevalfix_python.jsonl", model)
    (things / "humanevalfix.json").write_bytes(msgspec.json.encode(broken))
    long = make_long(data / "commit_edits.jsonl", model)
    (things / "long.json").write_bytes(msgspec.json.encode(long))
    (things / "evals").mkdir(exist_ok=True)
    for name in ("humanevalfix_python.jsonl", "editeval.jsonl"):
        shutil.copy(data / name, things / "evals")
    facts = {"name": model.name, "sha256": _digest(model), "pieces": pieces}
    (things / "model.json").write_text(json.dumps(facts))
    return pieces


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# ---- there -----------------------------------------------------------------------------------------


class Lease:
    """One machine's stages, in order; each leaves its figures in `found`."""

    def __init__(self, work: Path, out: Path, prefill: str) -> None:
        self.work, self.out, self.prefill = work, out, prefill
        self.things = LEASE / "things"
        self.gpu_folder = work / "gpu"
        self.found: dict[str, Any] = {}
        facts = self.things / "model.json"  # the tests need no model
        self._facts: dict[str, Any] = json.loads(facts.read_text()) if facts.exists() else {"name": "none"}
        self.model = work / self._facts["name"]

    def set_up(self) -> None:
        """Install packages from wheels, in front of the machine's own, and join the parts of the weights."""
        site = self.work / "site"
        unpack_wheels(self.things / "wheels", site)
        paths = [str(ROOT / "src"), str(ROOT), str(ROOT / "benchmarks"), str(site)]
        paths += filter(None, [os.environ.get("PYTHONPATH")])  # where `gpu_peers.py build` put llama.cpp
        sys.path[:0] = paths
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        if not self.model.exists() and any(self.work.glob("piece-*")):
            self._join()  # the tests need no weights and may run before they are there

    def _join(self) -> None:
        part = self.model.with_suffix(".part")
        assert join(self.work, part) == self._facts["pieces"], "not all pieces are here"
        assert _digest(part) == self._facts["sha256"], "the pieces do not make the file"
        part.rename(self.model)

    def stage_load(self) -> None:
        """Convert, then load again: the second time must take seconds."""
        from vivace.engine.runners.cuda.load import GpuOptions, open_runner

        for which in ("first_load_s", "second_load_s"):
            begun = time.perf_counter()
            runner = open_runner(self.model, GpuOptions(4096, folder=self.gpu_folder, prefill=self.prefill))
            self.found[which] = round(time.perf_counter() - begun, 2)
            self.found["pass_ms"] = {size: round(ms, 3) for size, ms in runner.known_costs().items()}
            runner.close()
            del runner

    def stage_tests(self) -> None:
        """Run the tests of the runner, or those of the files in `TESTS`; what has failed is known at once."""
        files = os.environ.get("TESTS", "tests/engine/runners/cuda tests/engine/runners/test_runners.py")
        command = [sys.executable, "-m", "pytest", "-vv", "-n", "4", "-p", "no:cacheprovider"]
        command += ["-p", "no:benchmark", "-W", "ignore", "--durations=5", *files.split()]
        if importlib.util.find_spec("llama_cpp") is None:
            command += ["-k", "not llama"]
        command += ["--ignore=tests/engine/runners/cuda/test_compile.py"]
        said = self.out / "tests.txt"
        code: int | str
        with said.open("w") as file:
            try:
                code = subprocess.run(
                    command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, timeout=TESTS_S, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = f"not over after {TESTS_S} s"
        lines = said.read_text().splitlines()
        failed = [line for line in lines if line.startswith("[gw") and ("FAILED" in line or "ERROR" in line)]
        self.found["tests"] = {"exit_code": code, "failed": failed, "last": lines[-1:]}

    def stage_equality(self) -> None:
        from gpu_equality import compare_with_transformers  # type: ignore[import-not-found,unused-ignore]

        self.found["equality"] = compare_with_transformers(
            self.model, self.gpu_folder, self._material(), self.prefill
        )

    def stage_prefill(self) -> None:
        from gpu_prefill import compare_prefills  # type: ignore[import-not-found,unused-ignore]

        self.found["prefill"] = compare_prefills(self.model, self.gpu_folder, self._material())

    def stage_bench(self) -> None:
        from vivace.bench.gpu.report import table
        from vivace.bench.gpu.run import run_gpu_bench

        report = run_gpu_bench(self.model, gpu_folder=self.gpu_folder, material=self.things / "material.json")
        self.found["bench"] = report
        print(table(report), flush=True)

    def stage_tempos(self) -> None:
        """Measure a realtime turn beside four background turns, with the real weights."""
        from vivace.bench.gpu.run import make_job
        from vivace.bench.tempos.measure import FULL
        from vivace.bench.tempos.report import table
        from vivace.bench.tempos.run import run_job, sliced_texts

        job = make_job(self.model, self.gpu_folder, 8, self.prefill)
        self.found["tempos"] = report = run_job(job, sliced_texts(self._material().code), FULL)
        print(table(report), flush=True)

    def stage_users(self) -> None:
        """Measure the total speed of several users in process, with the real weights."""
        from vivace.bench.gpu.users import USERS, run_users_bench, users_table

        self.found["users"] = report = run_users_bench(
            USERS, checkpoint=self.model, gpu_folder=self.gpu_folder
        )
        print(users_table(report), flush=True)

    def stage_team(self) -> None:
        """Measure several users of one server, each on a socket of its own."""
        from vivace.bench.team.run import run_team_bench, table
        from vivace.config import load_settings

        counts = [1, 2, 4, 8, 16, 32, 64]
        settings = load_settings().having(model=str(self._folder()))
        self.found["team"] = report = run_team_bench(settings, counts)
        print(table(report), flush=True)

    def stage_crowd(self) -> None:
        """Let 64 sockets do as they like, and kill the engine."""
        command = [sys.executable, str(ROOT / "benchmarks" / "gpu_crowd.py"), str(self._folder())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        (self.out / "crowd.txt").write_text(done.stdout + done.stderr)
        self.found["crowd"] = {"exit_code": done.returncode, "said": done.stdout.splitlines()}
        print(done.stdout, done.stderr[-1500:], flush=True)

    def stage_steers(self) -> None:
        """Say how many interruptions are obeyed, with the GPU's weights."""
        self.found["steers"] = self._command("eval", "steers")

    def stage_completions(self) -> None:
        """Measure the first suggestion in a file, and one three letters later."""
        self.found["completions"] = self._command("bench", "completions", "--files", "20")

    def _command(self, *words: str) -> dict[str, Any]:
        """Run a command of Vivace with the GPU's weights; keep its JSON, return all but the lists."""
        state = {name: str(self.work / "vivace" / name.lower()) for name in ("CACHE_DIR", "STATE_DIR")}
        environment = os.environ | {f"VIVACE_{name}": value for name, value in state.items()}
        command = [sys.executable, "-m", "vivace", *words, "--model", str(self._folder()), "--json"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        (self.out / f"{words[1]}.json").write_text(done.stdout)
        print(done.stderr[-1500:], flush=True)
        return {key: each for key, each in json.loads(done.stdout).items() if not isinstance(each, list)}

    def _folder(self) -> Path:
        """Return the weights as the server there can read them, vocabulary included."""
        from gpu_edits import make_folder  # type: ignore[import-not-found,unused-ignore]

        folder = self.work / "qwen2.5-coder-1.5b"
        if not folder.exists():
            make_folder(self.model, folder)
        return folder

    def stage_fixes(self) -> None:
        self.found["humanevalfix"] = {f"{bits}-bit": self._fixes(bits) for bits in (8, 16)}

    def stage_four(self) -> None:
        """Measure speed and HumanEvalFix of weights in 4 bits."""
        from vivace.bench.gpu.report import table
        from vivace.bench.gpu.run import run_gpu_bench

        material = self.things / "material.json"
        report = run_gpu_bench(
            self.model, gpu_folder=self.gpu_folder, material=material, bits=(4,), has_peers=False
        )
        print(table(report), flush=True)
        self.found["four"] = {"bench": report, "humanevalfix": self._fixes(4)["score"]}

    def stage_others(self) -> None:
        """Measure HumanEvalFix with a KV in 8 bits."""
        self.found["others"] = {"8-bit, 8-bit KV": self._fixes(8, kv_bits=8)["score"]}

    def _fixes(self, bits: int, kv_bits: int = 16) -> dict[str, Any]:
        import msgspec

        from gpu_fix import Broken, measure_fixes  # type: ignore[import-not-found,unused-ignore]

        rows = msgspec.json.decode((self.things / "humanevalfix.json").read_bytes(), type=list[Broken])
        return dict(measure_fixes(rows, self.model, self.gpu_folder, bits, self.prefill, kv_bits))

    def stage_edits(self) -> None:
        """Answer edits through the server; `EDITS` names efforts, or SET:EFFORT, else all."""
        self._answer("edits.jsonl", os.environ.get("EDITS", "").split())

    def stage_alone(self) -> None:
        """Answer 20 edits of each set one after the other: the seconds that one user waits."""
        ways = os.environ.get("EDITS", "").split()
        self._answer("alone.jsonl", ways, "--at-once", "1", "--sample", "20")

    def _answer(self, name: str, ways: list[str], *how: str) -> None:
        from gpu_edits import answer_sets  # type: ignore[import-not-found,unused-ignore]

        folder = self._folder()
        results = self.work / name  # what is answered stays answered
        given = (how,) if how else ()
        self.found[name] = answer_sets(folder, self.things / "evals", results, self.work, ways, *given)
        shutil.copy(results, self.out)

    def stage_requests(self) -> None:
        """Answer plain requests and repository tasks; `REQUESTS` names efforts, or tasks:EFFORT, else all."""
        from gpu_edits import answer_requests

        ways = os.environ.get("REQUESTS", "").split()
        folder = str(self._folder())
        self.found["requests"] = answer_requests(folder, self.things, self.out, self.work, ways)

    def stage_long(self) -> None:
        import msgspec

        from gpu_long import Long, measure_long

        long = msgspec.json.decode((self.things / "long.json").read_bytes(), type=Long)
        self.found["long"] = {
            f"{bits}-bit KV": measure_long(long, self.model, self.gpu_folder, kv_bits=bits)
            for bits in (16, 8)
        }

    def _material(self) -> Any:
        from vivace.bench.gpu.material import load_material

        return load_material(self.things / "material.json")

    def run(self, names: list[str]) -> int:
        self.out.mkdir(parents=True, exist_ok=True)
        self.set_up()
        stages: dict[str, Callable[[], None]] = {
            name: getattr(self, f"stage_{name}")
            for name in (
                "load",
                "tests",
                "equality",
                "prefill",
                "bench",
                "tempos",
                "users",
                "team",
                "crowd",
                "steers",
                "completions",
                "four",
                "fixes",
                "others",
                "edits",
                "alone",
                "requests",
                "long",
            )
        }
        broken = []
        for name in names or list(stages):
            begun = time.perf_counter()
            try:
                stages[name]()
            except Exception:  # noqa: BLE001 - one stage that fails must not cost the others their time
                broken.append(name)
                traceback.print_exc()
            print(f"== {name}: {time.perf_counter() - begun:.0f} s", flush=True)
            (self.out / f"lease-{'-'.join(names) or 'all'}.json").write_text(json.dumps(self.found, indent=2))
        print(json.dumps(self._short(), indent=1), flush=True)
        print("Broken stages:", *broken or ["none"])
        return len(broken)

    def _short(self) -> dict[str, Any]:
        """Return the summary: everything but the long lists."""
        short = {
            name: each for name, each in self.found.items() if name not in ("bench", "four", "humanevalfix")
        }
        fixes = self.found.get("humanevalfix", {})
        short["humanevalfix"] = {name: each["score"] for name, each in fixes.items()}
        short["four"] = self.found.get("four", {}).get("humanevalfix")
        short["missed"] = [key for key, ok in self.found.get("bench", {}).get("passed", {}).items() if not ok]
        return short


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "keep", "run"))
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--model", type=Path, help="the GGUF file (prepare); without, for tests alone")
    parser.add_argument(
        "--data", type=Path, help="folder with commit_edits and humanevalfix_python (prepare)"
    )
    parser.add_argument("--tasks", type=Path, help="folder with tasks.jsonl and archives/ (prepare)")
    parser.add_argument("--python", default="312", help="version of the other machine's Python (prepare)")
    parser.add_argument("--prefill", default="", help="bf16 or fp8 (run); fp8 goes with 8-bit weights")
    parser.add_argument("--work", type=Path, default=Path("/tmp/vivace-lease"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/vivace-lease/out"))
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.model, options.data, options.python, options.tasks)
    elif options.what == "keep":
        keep(options.work)
    else:
        return Lease(options.work, options.out, options.prefill).run(options.stages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
