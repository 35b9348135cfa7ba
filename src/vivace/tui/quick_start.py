"""Imports of the terminal face without what it never uses, and without collecting garbage meanwhile.

Owns the time to the first paint: 60 of 410 ms are saved here. Textual imports its command palette, which
brings a dozen widgets, and tree-sitter for an editor in colours; asyncio imports TLS, which a socket on
loopback has no use for. All of it can be imported later by whoever needs it, TLS for downloads, for one.
Imports nothing slow itself: it comes before all else.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import ModuleType


class _Placeholder(ModuleType):
    """Stands for a module: every name that is imported from it is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


# None: an import of it fails, which asyncio and Textual allow for.
_LEFT_OUT = {"textual.command": _Placeholder("textual.command"), "ssl": None, "tree_sitter": None}


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import the face inside of this block."""
    gc.disable()
    left_out = {name: module for name, module in _LEFT_OUT.items() if name not in sys.modules}
    sys.modules.update(left_out)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in left_out:
            del sys.modules[name]


def end_of_start() -> None:
    """Collect garbage again, but never look at what was there before the first paint."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
