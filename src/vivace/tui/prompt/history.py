"""What the user said before, over all conversations: for Up and for the search.

Owns the file: one JSON string a line, in the state folder, only added to. A file that cannot be read or
written costs the history, nothing else. Does not own the conversation's transcript.
"""

import contextlib
import json
from pathlib import Path

MAX_ENTRIES = 2000
MAX_CHARACTERS = 20_000  # of one entry: a pasted file is no history


class History:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: list[str] | None = None

    @property
    def entries(self) -> list[str]:
        """Return what was said, the oldest first, each once."""
        if self._entries is None:
            self._entries = _read(self._file)
        return self._entries

    def add(self, text: str) -> None:
        if not text.strip() or len(text) > MAX_CHARACTERS:
            return
        with contextlib.suppress(ValueError):
            self.entries.remove(text)
        self.entries.append(text)
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._file.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(json.dumps(text) + "\n")


def _read(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()[-MAX_ENTRIES:]
    except OSError:
        return []
    found: dict[str, None] = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            if isinstance(text := json.loads(line), str):
                found.pop(text, None)
                found[text] = None
    return list(found)
