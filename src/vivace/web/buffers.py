"""Unsaved texts of files that faces have open.

Owns what each face has said of which file; the last word counts, and a face that leaves takes its texts
along. Conversations read them in place of the files (`files`). Does not write anything.
"""

import os
from pathlib import Path

from vivace.agent.edits.apply.files import OpenFiles


class Buffers:
    def __init__(self) -> None:
        self.files = OpenFiles()
        self._texts: dict[Path, tuple[object, str]] = {}  # by real path: whose it is, and what it says

    def set(self, face: object, path: Path, text: str | None) -> None:
        """Take this text in place of the file; None: the file on disk counts again."""
        place = Path(os.path.realpath(path))
        self.files.set_buffer(place, text)
        if text is None:
            self._texts.pop(place, None)
        else:
            self._texts[place] = (face, text)

    def text(self, path: Path) -> str | None:
        """Return the unsaved text of a file, or None if there is none."""
        known = self._texts.get(Path(os.path.realpath(path)))
        return known[1] if known else None

    def forget(self, face: object) -> None:
        """Forget what a face has said."""
        for path in [path for path, (owner, _) in self._texts.items() if owner is face]:
            self.set(face, path, None)
