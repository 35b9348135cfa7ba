"""Imports point downward only, and the light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY

SOURCE = REPOSITORY / "src" / "vivace"
LAYERS = [
    "errors",
    "config",
    "durable",
    "kept_results",
    "fairness",
    "child_python",
    "programs",
    "redaction",
    "editors",
    "models",
    "engine",
    "protocol",
    "server",
    "client",
    "agent",
    "bench",
    "eval",
    "training",
    "tui",
    "acp",
    "cli",
    "web",
]
FORBIDDEN = {
    "protocol": {"models", "engine"},  # shapes and machines only
    "client": {"models", "engine", "server"},  # knows the wire and nothing behind it
    "agent": {"engine", "server"},  # a client like any stranger's
    **{face: {"training"} for face in ("tui", "acp", "cli", "web")},  # an extra, and heavy
}
# The rooms of the engine, from the wire up to the process. `wire/job.py` also asks what tuning found.
ENGINE_ROOMS = [
    "wire", "common_length", "faults", "runners", "devices", "tuning", "speculation", "output", "kv", "turns",
    "loop",
]  # fmt: skip
LIGHT = ["editors", "protocol", "client", "agent", "eval", "cli", "tui", "acp"]
HEAVY = {"torch", "llama_cpp", "llguidance", "numpy", "PIL", "uvicorn", "starlette", "openai"}


def imported(file: Path) -> set[str]:
    """Every module of vivace that a module names in any import, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("vivace.")}


def imports(file: Path) -> set[str]:
    """The parts of vivace that a module imports."""
    return {name.split(".")[1] for name in imported(file)} & set(LAYERS)


def modules(part: str) -> list[Path]:
    single = SOURCE / f"{part}.py"
    return [single] if single.exists() else sorted((SOURCE / part).rglob("*.py"))


@pytest.mark.parametrize("part", LAYERS)
def test_imports_point_downward(part: str) -> None:
    """A part imports only what is below it, and nothing that it must not know."""
    allowed = set(LAYERS[: LAYERS.index(part) + 1]) - FORBIDDEN.get(part, set())
    for file in modules(part):
        assert imports(file) <= allowed, f"{file} imports {imports(file) - allowed}"


def test_the_server_knows_of_the_engine_only_the_wire() -> None:
    """What crosses between the two processes is all that they share."""
    for file in modules("server"):
        beyond = {name for name in imported(file) if name.startswith("vivace.engine")}
        beyond = {name for name in beyond if not name.startswith("vivace.engine.wire.")}
        assert not beyond, f"{file} imports {beyond}"


def test_only_benches_import_stand_ins() -> None:
    """A scripted model runs in a process of its own, `vivace.testing.worker`. Benches write the scripts."""
    for file in SOURCE.rglob("*.py"):
        if file.relative_to(SOURCE).parts[0] not in ("testing", "bench"):
            names = {name for name in imported(file) if name.startswith("vivace.testing")}
            assert not names, f"{file} imports {names}"


@pytest.mark.parametrize("room", ENGINE_ROOMS)
def test_the_rooms_of_the_engine_build_on_each_other(room: str) -> None:
    """A room imports only those below it."""
    allowed = {*ENGINE_ROOMS[: ENGINE_ROOMS.index(room) + 1], *({"tuning"} if room == "wire" else ())}
    for file in modules(f"engine/{room}"):
        rooms = {name.split(".")[2] for name in imported(file) if name.startswith("vivace.engine.")}
        assert rooms & set(ENGINE_ROOMS) <= allowed, f"{file} imports {rooms - allowed}"


@pytest.mark.parametrize("part", LIGHT)
def test_light_parts_import_nothing_heavy(part: str) -> None:
    """Importing every module of a light part loads no inference library and no server."""
    names = [
        ".".join(("vivace", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for file in modules(part)
        if file.name != "__main__.py"
    ]
    code = f"import sys\nfor name in {names!r}: __import__(name)\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & {name.split(".")[0] for name in loaded.stdout.split()}
