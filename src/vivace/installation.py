"""How this Vivace was installed, and what that way leaves out.

Owns telling the ways apart, by the files that each leaves in its environment. Installs nothing.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

CLONE = Path(__file__).parent.parent.parent
MARKS = ("ready", "ready-dev")  # setup/install.py leaves them


@dataclass(frozen=True)
class Installation:
    way: str  # how it is said on the screen
    is_checked: bool = False  # llama.cpp was compiled by setup/native.py, and computed on this CPU

    def __str__(self) -> str:
        built = "compiled for this CPU and tried" if self.is_checked else "as pip or uv built it, not tried"
        return f"{self.way}; llama.cpp {built}"


def find_installation(prefix: Path | None = None, clone: Path = CLONE) -> Installation:
    """Return how the environment that runs this was made."""
    prefix = Path(sys.prefix) if prefix is None else prefix
    if any((prefix / mark).is_file() for mark in MARKS):
        return Installation(f"./vivace in {clone}", is_checked=True)
    if (prefix / "pipx_metadata.json").is_file():
        return Installation(f"pipx, in {prefix}")
    if (prefix / "uv-receipt.toml").is_file():
        return Installation(f"uv tool, in {prefix}")
    return Installation(f"pip, in {prefix}")
