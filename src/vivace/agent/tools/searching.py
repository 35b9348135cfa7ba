"""A search through files, for machines without ripgrep: a program of its own, which can be ended.

Owns the reading and the matching, with ripgrep's output (of `--null`) and exit codes. Does not own its limits
(`search`).
"""

import argparse
import fnmatch
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from vivace.agent.door import READABLE, real_path
from vivace.agent.tools.ignoring import walk

MAX_FILE_BYTES = 5_000_000
MAX_COLUMNS = 500
SNIFFED_BYTES = 8192
STDIN = "-"  # as a path


def main(arguments: list[str]) -> int:
    """Print what matches as path, NUL, `line:text`. Return 0, 1 if nothing does, 2 for a bad pattern."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ignore-case", action="store_true")
    parser.add_argument("--glob", default="")
    parser.add_argument("pattern")
    parser.add_argument("path")
    given = parser.parse_args(arguments)
    try:
        pattern = re.compile(given.pattern, re.IGNORECASE if given.ignore_case else 0)
    except re.error as error:
        print(f"regex parse error: {error}", file=sys.stderr)
        return 2
    found = False
    for path in _files(given.path):
        if (
            not given.glob
            or fnmatch.fnmatch(path, given.glob)
            or fnmatch.fnmatch(Path(path).name, given.glob)
        ):
            for number, line in _matches(path, pattern):
                found = True
                text = f"{number}:{line}\n".encode("utf-8", "replace")
                sys.stdout.buffer.write(os.fsencode(path) + b"\0" + text)
    sys.stdout.flush()
    return 0 if found else 1


def _files(path: str) -> Iterator[str]:
    if path == STDIN or not Path(path).is_dir():
        yield path
        return
    root, start = (path, "") if os.path.isabs(path) else (".", "" if path == "." else path)  # noqa: PTH117
    for found, is_folder in walk(real_path(Path(root)), start):
        if not is_folder:
            yield found if root == "." else f"{root}/{found}"


def _matches(path: str, pattern: "re.Pattern[str]") -> Iterator[tuple[int, str]]:
    try:
        fd = 0 if path == STDIN else os.open(path, READABLE)
    except OSError:
        return
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            return
        data = file.read(MAX_FILE_BYTES)
    if b"\0" in data[:SNIFFED_BYTES]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if pattern.search(line):
            yield number, line.rstrip("\r")[:MAX_COLUMNS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
