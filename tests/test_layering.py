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
    "fairness",
    "child_python",
    "models",
    "engine",
    "protocol",
    "server",
    "client",
    "agent",
    "bench",
    "eval",
    "cli",
    "tui",
    "web",
]
FORBIDDEN = {
    "protocol": {"models", "engine"},  # shapes and machines only
    "client": {"models", "engine", "server"},  # knows the wire and nothing behind it
    "agent": {"engine", "server"},  # a client like any stranger's
}
LIGHT = ["protocol", "client", "agent", "cli", "tui"]
HEAVY = {"torch", "llama_cpp", "llguidance", "numpy", "PIL", "uvicorn", "starlette", "openai"}


def imports(file: Path) -> set[str]:
    """The parts of vivace that a module names in any import, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            module = node.module or ""
            names = [f"vivace.{alias.name}" for alias in node.names] if module == "vivace" else [module]
        found |= {name.split(".")[1] for name in names if name.startswith("vivace.")}
    return found & set(LAYERS)


def modules(part: str) -> list[Path]:
    single = SOURCE / f"{part}.py"
    return [single] if single.exists() else sorted((SOURCE / part).rglob("*.py"))


@pytest.mark.parametrize("part", LAYERS)
def test_imports_point_downward(part: str) -> None:
    """A part imports only what is below it, and nothing that it must not know."""
    allowed = set(LAYERS[: LAYERS.index(part) + 1]) - FORBIDDEN.get(part, set())
    for file in modules(part):
        assert imports(file) <= allowed, f"{file} imports {imports(file) - allowed}"


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
