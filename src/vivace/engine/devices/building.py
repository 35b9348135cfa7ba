"""Builds llama.cpp's part for one kind of GPU: download, compile, try, keep.

The source is that of the installed llama-cpp-python, so the library fits what it is loaded into. Where the
plan says so, NVIDIA's compiler comes from the package index; its libraries stay beside the result. A build
that is stopped goes on where it stopped: source and objects stay until the library is there. Owns the steps
and their log. Does not decide whether to build (`vivace.extras`) or find compilers (`toolchain`).
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from vivace.child_python import module_command
from vivace.engine.devices.backend_files import (
    FOLDER,
    MANIFEST,
    BackendName,
    BuiltBackend,
    backend_key,
    library_file,
    llama_version,
)
from vivace.engine.devices.toolchain import INDEX_NVCC, INDEX_NVCC_MB, NO_NVCC, Nvcc
from vivace.errors import StartError
from vivace.programs import find_program, safe_path

SOURCE_MB = 77
TOOLKIT = "cuda-toolkit[nvcc,cccl,cublas]==13.2.*"  # NVIDIA's, in the package index
# of it, what the built library needs when it is used
TOOLKIT_LIBRARIES = ("cudart", "cublas", "cublasLt", "nvrtc", "nvrtc-builtins")
BUILD_BYTES = 2_000_000_000  # memory that one compiler may take
PACKAGE = "llama-cpp-python"
TAIL_LINES = 8
COMPILED = re.compile(r"\s*\[\s*(\d+)/(\d+)\]")
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_BACKEND_DL=ON",  # the part registers itself when it is loaded
    "-DGGML_CPU=OFF",
    "-DGGML_NATIVE=OFF",
    "-DGGML_CCACHE=OFF",
    "-DGGML_BUILD_TESTS=OFF",
    "-DGGML_BUILD_EXAMPLES=OFF",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",  # the arithmetic is on the GPU: nvcc and glslc have their own
    "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",
)

Tell = Callable[[str, float | None], None]  # which step, and how much of it is done


@dataclass(frozen=True)
class BuildPlan:
    """What is to be built."""

    name: BackendName
    cache_dir: Path
    nvcc: Nvcc = NO_NVCC
    capabilities: tuple[str, ...] = ()  # of the GPUs, for CUDA
    constraints: Path | None = None  # pins of the build's own tools, in a clone
    jobs: int = 0  # compilers at once; 0: what cores and memory allow

    @property
    def folder(self) -> Path:
        return self.cache_dir / FOLDER / backend_key(self.name)

    @property
    def work(self) -> Path:
        return self.cache_dir / "build" / f"backend-{backend_key(self.name)}"

    @property
    def cmake_options(self) -> list[str]:
        options = [*OPTIONS, f"-DGGML_{self.name.upper()}=ON"]
        if self.name == "cuda":
            architectures = ";".join(f"{each.replace('.', '')}-real" for each in self.capabilities)
            options += [
                f"-DCMAKE_CUDA_COMPILER={self.nvcc.path or self.toolkit / 'bin' / 'nvcc'}",
                f"-DCMAKE_CUDA_ARCHITECTURES={architectures}",
            ]
        if self.nvcc == INDEX_NVCC:  # its libraries will lie beside the one that is built
            options += [f"-DCUDAToolkit_ROOT={self.toolkit}", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"]
            options += ["-DCMAKE_INSTALL_RPATH=$ORIGIN"]
            options += ["-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--no-as-needed"]  # it must name the driver's library
        return options

    @property
    def toolkit(self) -> Path:
        """Return where NVIDIA's compiler is put if it comes from the package index."""
        return self.work / "toolkit" / "nvidia" / f"cu{INDEX_NVCC.version[0]}"


def build_backend(plan: BuildPlan, tell: Tell) -> BuiltBackend:
    """Build the library and put it into its folder. Raise `StartError` with the last lines if that fails."""
    plan.work.mkdir(parents=True, exist_ok=True)
    with (plan.work.parent / f"{plan.work.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("Waiting for another build of the same", None)
            fcntl.flock(lock, fcntl.LOCK_EX)
        steps = _Steps(plan.work / "build.log", tell)
        source = _get_source(plan, steps)
        if plan.nvcc == INDEX_NVCC:
            _get_toolkit(plan, steps)
        built = _compile(plan, source, steps)
        steps.run("Trying it", module_command("vivace.engine.runners.ggml", str(built)))
        return _keep(plan, built)


def _get_source(plan: BuildPlan, steps: "_Steps") -> Path:
    source = plan.work / "source"
    if not source.exists():
        fresh = plan.work / "download"
        shutil.rmtree(fresh, ignore_errors=True)
        where = ["--no-deps", "--no-binary", PACKAGE, "--dest", str(fresh), f"{PACKAGE}=={llama_version()}"]
        pins = {}
        if plan.constraints:
            pins = dict.fromkeys(("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"), plan.constraints.as_uri())
        pip = module_command("pip", "--disable-pip-version-check", "--no-input", "download")
        steps.run(f"Downloading llama.cpp's source, {SOURCE_MB} MB", [*pip, *where], pins)
        [archive] = fresh.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", tarfile.fully_trusted_filter)
            tar.extractall(fresh)
        [folder] = (path for path in fresh.iterdir() if path.is_dir())
        folder.rename(source)
        shutil.rmtree(fresh)
    return source


def _get_toolkit(plan: BuildPlan, steps: "_Steps") -> None:
    """Get NVIDIA's compiler and libraries, all or nothing, with the names that a linker looks for."""
    folder = plan.work / "toolkit"
    if folder.exists():
        return
    fresh = plan.work / "toolkit.new"
    shutil.rmtree(fresh, ignore_errors=True)
    pip = module_command("pip", "--disable-pip-version-check", "--no-input", "install", "--no-warn-conflicts")
    title = f"Downloading NVIDIA's compiler and libraries, {INDEX_NVCC_MB} MB"
    steps.run(title, [*pip, "--target", str(fresh), TOOLKIT])
    libraries = fresh / plan.toolkit.relative_to(folder) / "lib"
    for library in list(libraries.glob("lib*.so.*")):
        library.with_name(library.name.split(".")[0] + ".so").symlink_to(library.name)
    (libraries.parent / "lib64").symlink_to("lib")
    stubs = libraries / "stubs"
    stubs.mkdir()
    # The driver's library may be without the name that a linker looks for; nothing but its name is needed.
    named = ["-Wl,-soname,libcuda.so.1", "-o", str(stubs / "libcuda.so")]
    compiler = os.environ.get("CC", "cc").split()
    steps.run("Preparing the libraries", [*compiler, "-shared", "-x", "c", os.devnull, *named])
    fresh.rename(folder)


def _compile(plan: BuildPlan, source: Path, steps: "_Steps") -> Path:
    recipe, objects = plan.work / "recipe", plan.work / "objects"
    if not recipe.exists():  # a copy: a newer file would make a build that goes on start again
        recipe.mkdir()
        shutil.copyfile(Path(__file__).parent / "CMakeLists.txt", recipe / "CMakeLists.txt")
    tools = _tools(plan, steps)
    ggml = source / "vendor" / "llama.cpp" / "ggml"
    places = ["-G", "Ninja", "-S", str(recipe), "-B", str(objects), f"-DGGML_SOURCE={ggml}"]
    steps.run(
        "Configuring",
        [tools["cmake"], *places, f"-DCMAKE_MAKE_PROGRAM={tools['ninja']}", *plan.cmake_options],
    )
    jobs = str(plan.jobs or _jobs())
    command = [tools["cmake"], "--build", str(objects), "--target", f"ggml-{plan.name}", "--parallel", jobs]
    steps.run(f"Compiling llama.cpp for {plan.name}", command)
    library = objects / "library" / library_file(plan.name)
    if plan.nvcc == INDEX_NVCC:
        for name in TOOLKIT_LIBRARIES:
            for needed in (plan.toolkit / "lib").glob(f"lib{name}.so.*"):
                beside = library.with_name(needed.name)
                beside.unlink(missing_ok=True)
                beside.symlink_to(needed)
    return library


def _tools(plan: BuildPlan, steps: "_Steps") -> dict[str, str]:
    """Return where cmake and ninja are; get them from the package index where they are not."""
    found = {name: find_program(name) or "" for name in ("cmake", "ninja")}
    missing = [name for name, path in found.items() if not path]
    if missing:
        target = plan.work / "tools"
        pins = ["-c", str(plan.constraints)] if plan.constraints else []
        pip = module_command("pip", "--disable-pip-version-check", "--no-input", "install")
        steps.run(f"Getting {' and '.join(missing)}", [*pip, "--target", str(target), *pins, *missing])
        found |= {name: str(target / "bin" / name) for name in missing}
        steps.environ["PYTHONPATH"] = str(target)  # their programs are Python scripts
    return found


def _keep(plan: BuildPlan, built: Path) -> BuiltBackend:
    """Put the library and those beside it into their folder, whole, and remove what it was made of."""
    fresh = plan.folder.with_name(f"{plan.folder.name}.new-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for library in built.parent.glob("lib*"):
        shutil.copyfile(library, fresh / library.name)
    made = BuiltBackend(plan.name, str(plan.folder / built.name), plan.nvcc.version, plan.capabilities)
    (fresh / MANIFEST).write_bytes(msgspec.json.encode(made))
    shutil.rmtree(plan.folder, ignore_errors=True)
    fresh.rename(plan.folder)
    shutil.rmtree(plan.work, ignore_errors=True)
    return made


def _jobs() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // BUILD_BYTES))


class _Steps:
    """Runs commands one after the other, each line into the log, and tells how far each is."""

    def __init__(self, log: Path, tell: Tell) -> None:
        self.log, self._tell = log, tell
        self.environ: dict[str, str] = os.environ | {"PATH": safe_path()}

    def run(self, title: str, command: Sequence[str], extra: Mapping[str, str] | None = None) -> None:
        self._tell(title, None)
        with self.log.open("ab") as log:
            log.write(f"\n=== {title}: {' '.join(command)}\n".encode())
            with subprocess.Popen(
                command,
                env=self.environ | dict(extra or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process:
                try:
                    self._follow(title, process, log)
                except BaseException:
                    _end_group(process)
                    raise
        if process.returncode:
            raise StartError(
                f"{title} failed. Its last lines:\n{self._last_lines()}",
                f"The whole log is {self.log}. Nothing else was changed; the same command goes on from here.",
            )

    def _follow(self, title: str, process: "subprocess.Popen[bytes]", log: BinaryIO) -> None:
        assert process.stdout is not None
        steps = 0  # of the whole build; a build inside of it counts its own, which are fewer
        for line in process.stdout:
            log.write(line)
            log.flush()
            if match := COMPILED.match(line.decode("utf-8", "replace")):
                done, count = int(match[1]), int(match[2])
                steps = max(steps, count)
                if done and count == steps:
                    self._tell(title, done / steps)

    def _last_lines(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(f"  | {line[:200]}" for line in lines[-TAIL_LINES:])


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a command with all that it started, and wait: the compiler removes half-written objects."""
    for name in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, name)
            process.wait(5)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue
        return
