"""What is not installed by default, because it is large or for few: its packages, and whether they are here.

Owns the list and how one is installed into the environment that runs this. What the packages are is said in
pyproject.toml: beside the sources in a clone, in our own metadata where we were installed as a package. Those
for GPUs may be a build of llama.cpp instead: which one, `engine.devices.adding` decides.
"""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from vivace.child_python import module_command
from vivace.engine.devices.adding import Addition, plan_addition
from vivace.engine.devices.backend_files import BackendName, find_built
from vivace.engine.devices.building import BuildPlan, Tell, build_backend
from vivace.engine.devices.machine import detect_machine
from vivace.engine.devices.toolchain import NO_NVCC, find_nvcc, missing_for_vulkan
from vivace.errors import StartError, UsageError

CLONE = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Extra:
    name: str
    what: str
    modules: tuple[str, ...]  # all of them are there once it is installed

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(module for module in self.modules if not _has(module))

    def is_here(self, cache_dir: Path) -> bool:
        """Return whether it can be used: its packages, or what was built for it instead."""
        return (bool(self.modules) and not self.missing) or self.name in find_built(cache_dir)


EXTRAS = (
    Extra(
        "cuda",
        "NVIDIA GPUs: our kernels (H100, H200), or llama.cpp built with CUDA (others)",
        ("torch", "triton", "gguf", "safetensors", "tokenizers"),
    ),
    Extra("vulkan", "GPUs of other makers: llama.cpp built with Vulkan", ()),
    Extra("mcp", "tools of MCP servers, and `vivace mcp serve`", ("mcp", "httpx2")),
    Extra("train", "training an adapter for the edit loop: `python -m vivace.training`", ("torch",)),
    Extra("checks", "checkers of edits: ruff and ty look at what an answer newly breaks", ("ruff", "ty")),
    Extra("otel", "OpenTelemetry traces", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # what it is a part of is not there
        return False


def find_extra(name: str) -> Extra:
    for extra in EXTRAS:
        if extra.name == name:
            return extra
    names = ", ".join(extra.name for extra in EXTRAS)
    raise UsageError(f"There is no extra {name!r}.", f"There are: {names}.")


def install_command(extra: Extra, clone: Path = CLONE) -> list[str]:
    """Return the command that installs it here. In a clone, the versions are those that were tested."""
    command = module_command("pip", "install", "--disable-pip-version-check", "--no-input")
    project = clone / "pyproject.toml"
    if project.is_file():
        wanted = tomllib.loads(project.read_text("utf-8"))["project"]["optional-dependencies"][extra.name]
        constraints = clone / "constraints.txt"
        return [*command, *(["-c", str(constraints)] if constraints.is_file() else []), *wanted]
    try:
        version = importlib.metadata.version("vivace")
    except importlib.metadata.PackageNotFoundError as error:
        raise StartError(
            "It is not known how Vivace was installed here.", "Install it from a clone."
        ) from error
    return [*command, f"vivace[{extra.name}]=={re.sub('[^0-9a-z.+]', '', version)}"]


def plan_gpu(name: BackendName, cache_dir: Path, *, wants_llama: bool = False) -> Addition:
    """Return what adding support for these GPUs will do on this machine."""
    nvcc = find_nvcc() if name == "cuda" else NO_NVCC
    missing = missing_for_vulkan() if name == "vulkan" else ()
    machine, cores = detect_machine(cache_dir), os.cpu_count() or 1
    return plan_addition(name, machine, nvcc, missing, cores, wants_llama=wants_llama)


def build_gpu(name: BackendName, addition: Addition, cache_dir: Path, tell: Tell) -> str:
    """Build llama.cpp's part for these GPUs; return the file."""
    constraints = CLONE / "constraints.txt"
    plan = BuildPlan(
        name,
        cache_dir,
        addition.nvcc,
        addition.capabilities,
        constraints if constraints.is_file() else None,
    )
    return build_backend(plan, tell).library


def install(extra: Extra) -> None:
    """Run pip, which shows what it does; `StartError` if it fails, or if there is none."""
    if importlib.util.find_spec("pip") is None:
        raise StartError(
            "There is no pip in this environment.",
            f"uv makes such: name the extra in the clone, uv tool install --reinstall '.[{extra.name}]'.",
        )
    if subprocess.run(install_command(extra), check=False).returncode:
        raise StartError(
            f"pip could not install the extra {extra.name}.",
            "Its last lines say why. Nothing else was changed.",
        )
