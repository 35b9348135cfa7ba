"""When a scripted engine made its tokens, as it wrote it into a file; and replies that no draft foresees.

Owns reading what `testing.scripted.Stamps` writes.
"""

import random
import string
from pathlib import Path

LETTERS = string.ascii_letters + string.digits + " "


def noise(length: int, seed: int) -> str:
    """Return text without repetitions. Each letter is a token."""
    return "".join(random.Random(seed).choices(LETTERS, k=length))


def made_ns(file: Path, row: int, tokens: int) -> list[int]:
    """Return when each of the `tokens` tokens of the reply in this row was made."""
    columns = tokens + 1
    cells = memoryview(file.read_bytes()).cast("q")
    return cells[row * columns : row * columns + tokens].tolist()
