"""llama.cpp, compiled for exactly this CPU, as a wheel that every clone on this kind of machine shares.

Owns the wheel cache (pip's own is not keyed by CPU, so it is never used here), the build and its options, and
the test that the result runs. A build that stops half-way goes on where it stopped. Standard library only.
"""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import sys
import zipfile
from pathlib import Path

from steps import StepFailed, Steps, compiled_fraction

PACKAGE = "llama-cpp-python"
BUILD_BYTES = 1_500_000_000  # memory that one compiler may take with a unity source
OPTIONS = (
    "-DLLAVA_BUILD=OFF",
    "-DMTMD_BUILD=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_ALL_WARNINGS=OFF",
)
UNPACK = """
import sys, tarfile
with tarfile.open(sys.argv[1]) as tar:
    tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not before 3.11.4
    tar.extractall(sys.argv[2])
"""
REMOVE = "import shutil, sys\nfor folder in sys.argv[1:]: shutil.rmtree(folder, ignore_errors=True)"
VOCABULARIES = ("qwen2", "qwen35", "llama-bpe", "gemma-4", "phi-3")  # 36 MB
RECIPE = ("llama.cmake", "amx_tileconfig.h")


class NativeBuild:
    """The wheel for one machine, one version and one recipe."""

    def __init__(self, setup: Path, constraints: Path, cache: Path, machine_key: str) -> None:
        self.setup, self.constraints = setup, constraints
        self.version = pinned_version(constraints.read_text("utf-8"))
        key = f"{machine_key}-{self.version}-{self._recipe_sum()}"
        self.wheels = cache / "wheels" / key
        self.work = cache / "build" / key
        self.templates = cache / "templates" / self.version

    def _recipe_sum(self) -> str:
        own = " ".join((*OPTIONS, os.environ.get("CMAKE_ARGS", "")))
        recipe = b"".join((self.setup / name).read_bytes() for name in RECIPE)
        return hashlib.sha256(own.encode() + recipe).hexdigest()[:12]

    @property
    def is_cached(self) -> bool:
        return any(self.wheels.glob("*.whl"))

    def wheel(self, steps: Steps, python: Path) -> Path:
        """The finished wheel: from the cache, or built, tried and put there."""
        self.work.mkdir(parents=True, exist_ok=True)
        with (self.work.parent / f"{self.work.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another clone may be building the same
            found = sorted(self.wheels.glob("*.whl"))
            if not found:
                self._build_and_try(steps, python)
            self.work.rename(self.work.with_name(f"{self.work.name}.old-{os.getpid()}"))
        old = map(str, self.work.parent.glob("*.old-*"))
        steps.start_beside("Tidying up", "tidying up", [sys.executable, "-EsB", "-c", REMOVE, *old])
        return sorted(self.wheels.glob("*.whl"))[0]

    def _build_and_try(self, steps: Steps, python: Path) -> None:
        self._get_source(steps, python)
        built = self._build(steps, python, "Compiling llama.cpp for this CPU")
        if not self._runs(steps, python, built):
            built = self._build(steps, python, "Compiling it again without AMX", "-DVIVACE_WITHOUT_AMX=ON")
            if not self._runs(steps, python, built):
                raise StepFailed("llama.cpp was built, but does not compute on this CPU.", REPORT)
        self.wheels.parent.mkdir(parents=True, exist_ok=True)
        built.parent.rename(self.wheels)  # a wheel is in the cache only whole, and only if it runs

    def _get_source(self, steps: Steps, python: Path) -> None:
        source = self.work / "source"
        if source.exists():
            return
        fresh = self.work / "sdist"
        shutil.rmtree(fresh, ignore_errors=True)
        where = ["--no-deps", "--no-binary", PACKAGE, "--dest", str(fresh), f"{PACKAGE}=={self.version}"]
        steps.run(
            "Downloading llama.cpp's source, 77 MB", [*pip(python), "download", *where], extra=self._pins()
        )
        [archive] = fresh.glob("*.tar.gz")
        steps.run("Unpacking it", [sys.executable, "-EsB", "-c", UNPACK, str(archive), str(fresh)])
        [folder] = (path for path in fresh.iterdir() if path.is_dir())
        self._keep_templates(folder / "vendor" / "llama.cpp" / "models")
        folder.rename(source)
        shutil.rmtree(fresh)

    def _keep_templates(self, models: Path) -> None:
        """Keep llama.cpp's chat templates and a few vocabularies: tests compare with them."""
        if self.templates.exists() or not (models / "templates").is_dir():
            return
        fresh = self.templates.with_name(f"{self.templates.name}.new-{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(models / "templates", fresh / "templates")
        for name in VOCABULARIES:
            shutil.copy2(models / f"ggml-vocab-{name}.gguf", fresh)
        fresh.rename(self.templates)

    def _build(self, steps: Steps, python: Path, title: str, *options: str) -> Path:
        for name in RECIPE:  # a copy, made once: a newer file would make a build that goes on start again
            if not (self.work / name).exists():
                shutil.copyfile(self.setup / name, self.work / name)
        options = (*OPTIONS, f"-DCMAKE_PROJECT_INCLUDE={self.work / RECIPE[0]}", *options)
        own = " ".join(shlex.quote(option) for option in options)
        environ = {
            "CMAKE_ARGS": f"{own} {os.environ.get('CMAKE_ARGS', '')}".strip(),
            "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(jobs()),
            "SKBUILD_BUILD_DIR": str(self.work / "objects"),
            "SKBUILD_BUILD_TARGETS": "llama",
            **self._pins(),
        }
        target = self.work / "wheel"
        shutil.rmtree(target, ignore_errors=True)
        where = ["--no-deps", "--no-cache-dir", "-v", "--wheel-dir", str(target), str(self.work / "source")]
        steps.run(title, [*pip(python), "wheel", *where], compiled_fraction, environ)
        [built] = target.glob("*.whl")
        return built

    def _pins(self) -> dict[str, str]:
        """Make the pins hold in pip's build environment too: older and newer pips read one each. A URL, since
        pip splits these at spaces."""
        return dict.fromkeys(("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"), self.constraints.as_uri())

    def _runs(self, steps: Steps, python: Path, built: Path) -> bool:
        """Compute with the fresh libraries in a process of its own: a wrong instruction ends only that."""
        unpacked = self.work / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with zipfile.ZipFile(built) as archive:
            archive.extractall(unpacked)
        command = [str(python), "-EsB", str(self.setup / "smoke.py"), str(unpacked / "llama_cpp" / "lib")]
        try:
            steps.run("Trying it on this CPU", command)
        except StepFailed:
            return False
        return True


REPORT = (
    "Please report this with the log and the CPU's name. Until then CMAKE_ARGS=-DGGML_NATIVE=OFF before the "
    "same command builds a slower one that runs anywhere."
)


def pinned_version(constraints: str) -> str:
    match = re.search(r"^llama[-_]cpp[-_]python==(\S+)", constraints, re.MULTILINE)
    assert match, "constraints.txt must pin llama-cpp-python"
    return match[1]


def pip(python: Path) -> list[str]:
    return [str(python), "-EsB", "-m", "pip", "--disable-pip-version-check", "--no-input"]


def jobs() -> int:
    """As many compilers as there are cores, and as the memory can feed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, memory_bytes() // BUILD_BYTES))


def memory_bytes() -> int:
    try:
        text = Path("/proc/meminfo").read_text("ascii")
        return int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VIVACE_CACHE_DIR") or Path(base) / "vivace")
