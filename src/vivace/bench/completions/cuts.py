"""Lines cut out of real files: what an editor would ask for, and what really stands there.

The files are Python's own standard library, which is on every machine. Owns which lines are taken, the same
ones for the same seed on the same Python.
"""

import random
import sysconfig
from pathlib import Path
from typing import NamedTuple

MODULES = (
    "textwrap",
    "shlex",
    "csv",
    "calendar",
    "bisect",
    "fnmatch",
    "heapq",
    "queue",
    "sched",
    "string",
    "colorsys",
    "copy",
    "difflib",
    "cmd",
    "netrc",
    "wave",
    "zipapp",
    "timeit",
    "statistics",
    "quopri",
)
LEAST_CHARS = 12  # of a line that is worth asking for
FIRST_LINE, LAST_LINES = 30, 10  # of a file: where lines are not taken


class Cut(NamedTuple):
    file: str
    prefix: str  # up to the cursor, which stands after the first third of a line
    rest: str  # of that line
    suffix: str

    def typed(self, letters: int) -> "Cut":
        """Return the same place after these letters of the line were typed."""
        return Cut(self.file, self.prefix + self.rest[:letters], self.rest[letters:], self.suffix)


def cuts(count: int, seed: int) -> list[Cut]:
    """Return one cut for each of `count` files."""
    chance = random.Random(seed)
    folder = Path(sysconfig.get_path("stdlib"))
    return [_cut(folder / f"{name}.py", chance) for name in MODULES[:count]]


def _cut(file: Path, chance: random.Random) -> Cut:
    lines = file.read_text("utf-8").split("\n")
    number = chance.choice([at for at in range(len(lines)) if _is_worth_it(lines, at)])
    line = lines[number]
    indent = len(line) - len(line.lstrip())
    cursor = indent + len(line.strip()) // 3
    before = "\n".join([*lines[:number], line[:cursor]])
    return Cut(file.name, before, line[cursor:], "\n".join(["", *lines[number + 1 :]]))


def _is_worth_it(lines: list[str], number: int) -> bool:
    text = lines[number].strip()
    is_inside = FIRST_LINE <= number < len(lines) - LAST_LINES
    is_code = text[-1:] in (")", ":", "]") or " = " in text or text.startswith("return ")
    return is_inside and is_code and len(text) >= LEAST_CHARS and not text.startswith("#")
