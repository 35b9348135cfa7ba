"""The imports of the first paint, in a process of their own."""

import subprocess
import sys

CODE = """
import gc, sys
from vivace.tui.quick_start import end_of_start, quick_imports
with quick_imports():
    import vivace.tui.app
print([name for name in ("textual.command", "ssl", "tree_sitter", "click") if name in sys.modules])
import ssl, tree_sitter, textual.command
print(ssl.SSLContext.__name__, tree_sitter.Parser.__name__, textual.command.CommandPalette.__mro__[-1])
end_of_start()
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


def test_what_the_face_never_uses_is_not_imported_and_can_be_later() -> None:
    """The palette, TLS and tree-sitter are left out of the start; whoever needs them gets the real ones."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "SSLContext Parser <class 'object'>", "True True"]
