"""Building a part of llama.cpp for a GPU: steps, a stop in the middle, and what is left behind."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vivace.engine.devices import building
from vivace.engine.devices.backend_files import find_built, library_file
from vivace.engine.devices.building import BuildPlan, build_backend
from vivace.engine.devices.toolchain import INDEX_NVCC, Nvcc, find_nvcc
from vivace.errors import StartError

# stands in for cmake: configures at once, compiles two files, and fails at the second while BROKEN is there
CMAKE = """#!/bin/sh
here=$(dirname "$0")
echo "$@" >>"$here/calls"
[ "$1" = --build ] || exit 0
echo "[1/2] one.o"
[ ! -e "$here/BROKEN" ] || { echo "error: two.cu is wrong"; exit 1; }
echo "[2/2] two.o"
mkdir -p "$2/library" && echo library >"$2/library/LIBRARY"
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildPlan:
    """A plan whose source is here already, on a machine with a quick compiler."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cmake", "ninja"):
        (tools / name).write_text(CMAKE.replace("LIBRARY", library_file("cuda")))
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setattr(building, "module_command", lambda *_: ["true"])  # what tries the library
    plan = BuildPlan("cuda", tmp_path / "cache", Nvcc("/cuda/bin/nvcc", (12, 8)), ("8.6", "12.0"), jobs=1)
    (plan.work / "source").mkdir(parents=True)
    return plan


def test_what_is_built_is_found(plan: BuildPlan) -> None:
    """With what it was built for; source and objects are gone, and progress was told."""
    told: list[tuple[str, float | None]] = []
    made = build_backend(plan, lambda title, fraction: told.append((title, fraction)))
    assert find_built(plan.cache_dir) == {"cuda": made}
    assert Path(made.library).read_text() == "library\n"
    assert made.toolkit == (12, 8)
    assert [fraction for title, fraction in told if title == "Compiling llama.cpp for cuda"] == [
        None,
        0.5,
        1.0,
    ]
    assert not plan.work.exists()


def test_a_build_inside_of_the_build_is_no_progress(tmp_path: Path) -> None:
    """As of Vulkan's shader compiler: its "[2/2]" is not the end of 334 steps."""
    told: list[float | None] = []
    steps = building._Steps(tmp_path / "log", lambda _, fraction: told.append(fraction))
    lines = ["[0/2] Re-checking", "[1/4] one.o", "[1/2] inner.o", "[2/2] inner", "[2/4] two.o", "[4/4] all"]
    steps.run("Compiling", ["printf", "%s\\n", *lines])
    assert told == [None, 0.25, 0.5, 1.0]


def test_each_gpu_is_compiled_for(plan: BuildPlan) -> None:
    """With nvcc as it was found, and nothing of the CPU's build."""
    options = plan.cmake_options
    assert "-DCMAKE_CUDA_ARCHITECTURES=86-real;120-real" in options
    assert "-DCMAKE_CUDA_COMPILER=/cuda/bin/nvcc" in options
    assert "-DGGML_CPU=OFF" in options


# stands in for pip: NVIDIA's files as their wheels lay them, or half of them while BROKEN is there
PIP = """#!/bin/sh
here=$(dirname "$0")
echo "$@" >>"$here/pip-calls"
while [ "$1" != --target ]; do shift; done
home="$2/nvidia/cu13"
mkdir -p "$home/bin" "$home/lib"
[ ! -e "$here/BROKEN" ] || { echo "error: no network"; exit 1; }
touch "$home/bin/nvcc" "$home/lib/libcudart_static.a"
for name in cudart.so.13 cublas.so.13 cublasLt.so.13 nvrtc.so.13 nvrtc-builtins.so.13.2 nvblas.so.13
do echo "lib$name" >"$home/lib/lib$name"; done
"""


@pytest.fixture
def fetching(plan: BuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildPlan:
    """The same on a machine without nvcc."""
    if sys.platform == "darwin":
        pytest.skip("Macs have no NVIDIA GPUs")
    pip = tmp_path / "tools" / "pip"
    pip.write_text(PIP)
    pip.chmod(0o755)
    monkeypatch.setattr(
        building, "module_command", lambda *words: [str(pip), *words] if words[0] == "pip" else ["true"]
    )
    return replace(plan, nvcc=INDEX_NVCC)


def test_a_compiler_that_is_not_here_is_fetched(fetching: BuildPlan, tmp_path: Path) -> None:
    """From the package index; what the library needs of it stays beside the library, and nothing else."""
    made = build_backend(fetching, lambda *_: None)
    assert made.toolkit == (13, 2)
    beside = {file.name for file in Path(made.library).parent.iterdir()}
    assert beside - {"built.json", library_file("cuda")} == {
        "libcudart.so.13",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libnvrtc.so.13",
        "libnvrtc-builtins.so.13.2",
    }
    assert (Path(made.library).parent / "libcublas.so.13").read_text() == "libcublas.so.13\n"
    [configured, _] = (tmp_path / "tools" / "calls").read_text().splitlines()
    home = fetching.work / "toolkit" / "nvidia" / "cu13"
    assert f"-DCMAKE_CUDA_COMPILER={home}/bin/nvcc" in configured
    assert f"-DCUDAToolkit_ROOT={home}" in configured
    assert "-DCMAKE_INSTALL_RPATH=$ORIGIN" in configured
    assert "--no-as-needed" in configured  # or a linker drops the driver's library: the stub has no symbols
    assert not fetching.work.exists()


def test_a_linker_finds_what_was_fetched(fetching: BuildPlan, tmp_path: Path) -> None:
    """NVIDIA's wheels lack the names without a version, lib64 and the driver's library."""
    building._get_toolkit(fetching, building._Steps(tmp_path / "log", lambda *_: None))
    libraries = fetching.toolkit / "lib64"
    assert (libraries / "libcublas.so").resolve() == (libraries / "libcublas.so.13").resolve()
    assert b"libcuda.so.1\0" in (libraries / "stubs" / "libcuda.so").read_bytes()


def test_a_download_that_failed_begins_anew(fetching: BuildPlan, tmp_path: Path) -> None:
    """Half a compiler is never used; a whole one is not downloaded again."""
    broken, calls = tmp_path / "tools" / "BROKEN", tmp_path / "tools" / "pip-calls"
    broken.touch()
    with pytest.raises(StartError, match="no network"):
        build_backend(fetching, lambda *_: None)
    broken.unlink()
    steps = building._Steps(tmp_path / "log", lambda *_: None)
    building._get_toolkit(fetching, steps)
    assert (fetching.toolkit / "bin" / "nvcc").exists()
    building._get_toolkit(fetching, steps)
    assert len(calls.read_text().splitlines()) == 2


def test_a_build_that_failed_goes_on(plan: BuildPlan, tmp_path: Path) -> None:
    """The last lines and the log are named, nothing is used that is half done, and the source stays."""
    broken = tmp_path / "tools" / "BROKEN"
    broken.touch()
    with pytest.raises(StartError, match=r"two\.cu is wrong") as failed:
        build_backend(plan, lambda *_: None)
    assert "build.log" in failed.value.hint
    assert find_built(plan.cache_dir) == {}
    assert (plan.work / "source").exists()
    broken.unlink()
    build_backend(plan, lambda *_: None)
    assert list(find_built(plan.cache_dir)) == ["cuda"]


def test_nvcc_is_found_where_cuda_home_says(tmp_path: Path) -> None:
    """And its version is what it says of itself."""
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    nvcc.chmod(0o755)
    assert find_nvcc({"CUDA_HOME": str(tmp_path), "PATH": ""}) == Nvcc(str(nvcc), (12, 4))
