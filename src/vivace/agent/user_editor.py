"""The user's own editor: which program it is, how it is started, and what it has made of files.

Owns that whatever goes wrong with it is one sentence, after which the terminal is as it was: an editor that
is not there, fails, is killed, or leaves no text. Does not own what is done with the texts, nor a screen that
has to give way to the editor (`tui.external_editor`).
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from vivace.errors import UsageError

_HINT = "Nothing was changed by it. Set EDITOR to one that works, such as EDITOR=nano."


async def edit_bytes(name: str, data: bytes) -> bytes:
    """Return what the user has made of this text; the editor sees it as a file of this name."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        (changed,) = await edit_files([file])
        return changed


async def edit_files(files: Sequence[Path]) -> tuple[bytes, ...]:
    """Let the user change these text files. Return their new bytes, or raise what went wrong."""
    editor = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip() or "vi"
    try:
        with _terminal_kept(), _ctrl_c_is_the_editors():
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), *map(str, files))
            code = await process.wait()
        if code:
            raise UsageError(f"The editor {editor} {_how_it_ended(code)}.", _HINT)
        texts = tuple(file.read_bytes() for file in files)
        for text in texts:
            text.decode("utf-8")
    except FileNotFoundError as error:
        if error.filename in map(str, files):
            raise UsageError(f"The editor {editor} has removed the file.", _HINT) from error
        raise UsageError(f"The editor {editor} is not here.", _HINT) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The editor {editor} left a text that is not UTF-8.", _HINT) from error
    except (OSError, ValueError) as error:  # ValueError: quotes in its name that do not match
        raise UsageError(f"The editor {editor} could not be used: {error}.", _HINT) from error
    return texts


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Give the terminal its mode back: an editor that is killed leaves its own."""
    try:
        mode = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, mode)


@contextlib.contextmanager
def _ctrl_c_is_the_editors() -> Iterator[None]:
    """Let Ctrl+C end the editor and not us: the terminal sends it to both. A handler is not inherited."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
