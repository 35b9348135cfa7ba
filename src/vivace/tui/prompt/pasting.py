"""Large pasted texts, folded into a placeholder in the editor and sent whole.

Owns the placeholders and what they stand for. A placeholder that the user has changed stands for nothing but
itself. Does not own the editor.
"""

import re

MAX_LINES, MAX_CHARACTERS = 12, 2000  # what is longer is folded
_PLACEHOLDER = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def fold(self, text: str) -> str:
        """Return what is to stand in the editor for a pasted text: itself, if it is short."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= MAX_LINES and len(text) <= MAX_CHARACTERS:
            return text
        self._count += 1
        placeholder = f"[pasted #{self._count}: {lines} line{'' if lines == 1 else 's'}, {_size(len(text))}]"
        self._texts[placeholder] = text
        return placeholder

    def unfold(self, text: str) -> str:
        """Return the text with everything that was pasted in its place."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(found[0], found[0]), text)


def _size(characters: int) -> str:
    if characters < 10_000:
        return f"{characters} characters"
    return f"{characters / 1e3:.0f} kB" if characters < 1e6 else f"{characters / 1e6:.1f} MB"
