"""The tool `read`: lines of a file, numbered.

Owns what is said of a file that cannot be shown whole, or not at all. Reads text of any size, a part at a
time.
"""

import asyncio
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar

from msgspec import Meta

from vivace.agent.door import open_file
from vivace.agent.permissions.decision import Need, ReadPath
from vivace.agent.permissions.paths import locate
from vivace.agent.tools.base import Arguments, FunctionTool, ToolContext, ToolResult, judged
from vivace.agent.tools.bounded import printable
from vivace.errors import FileProblem

MAX_LINES = 1000
MAX_CHARS = 24_000  # of all lines
MAX_LINE_BYTES = 2000
MAX_SCANNED_BYTES = 64_000_000  # a line further behind is not looked for
SNIFFED_BYTES = 8192


class ReadArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="relative to the workspace")]
    first_line: Annotated[int, Meta(ge=1, description="where to begin")] = 1
    last_line: Annotated[int | None, Meta(description="where to end, this line included")] = None


class Read(FunctionTool[ReadArguments]):
    name: ClassVar[str] = "read"
    description: ClassVar[str] = (
        f"Read a text file, or some of its lines. Lines come numbered, at most {MAX_LINES} at a time."
    )
    is_read_only: ClassVar[bool] = True
    arguments = ReadArguments

    def needs(self, arguments: ReadArguments, context: ToolContext) -> list[Need]:
        return [ReadPath(locate(context.root, arguments.path))]

    def title(self, arguments: ReadArguments) -> str:
        if arguments.first_line == 1 and arguments.last_line is None:
            return arguments.path
        return f"{arguments.path}:{arguments.first_line}-{arguments.last_line or ''}"

    async def run(self, arguments: ReadArguments, context: ToolContext, needs: Sequence[Need]) -> ToolResult:
        place = judged(needs)[arguments.path]
        last = (
            arguments.last_line if arguments.last_line is not None else arguments.first_line + MAX_LINES - 1
        )
        if last < arguments.first_line:
            raise FileProblem(f"Line {last} is before line {arguments.first_line}.")
        await context.writes.files.refresh([place.path])
        buffer = context.writes.files.buffer(place.path)
        opened = _opened(place.path, arguments.path) if buffer is None else io.BytesIO(buffer)
        with opened as file:
            return await asyncio.to_thread(_read_lines, file, arguments.path, arguments.first_line, last)


def _read_lines(file: BinaryIO, shown: str, first: int, last: int) -> ToolResult:
    """Return the lines, and how to read what follows them."""
    last = min(last, first + MAX_LINES - 1)
    lines: list[str] = []
    number = chars = 0
    has_more = False
    for number, line in enumerate(_lines(file), 1):
        if number > last or chars > MAX_CHARS:
            has_more = True
            break
        if number >= first:
            lines.append(f"{number}\t{line}")
            chars += len(lines[-1])
    is_too_far = not has_more and file.tell() >= MAX_SCANNED_BYTES
    size = file.seek(0, os.SEEK_END)
    if not lines:
        if is_too_far:
            raise FileProblem(f"{shown} is too large ({size:,} bytes) to find line {first} in it.")
        what = "is empty." if number == 0 else f"has {number} lines, and no line {first}."
        return ToolResult(f"{shown} {what}", "empty" if number == 0 else f"{number} lines")
    if has_more:
        following = first + len(lines)
        lines.append(f"[{shown} goes on, {size:,} bytes in all: read again with first_line={following}]")
    return ToolResult("\n".join(lines), f"{len(lines) - has_more} lines")


def _lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file, long ones cut, up to the size that is looked through."""
    while file.tell() < MAX_SCANNED_BYTES and (data := file.readline(MAX_LINE_BYTES)):
        text = printable(data.rstrip(b"\r\n"))
        if len(data) == MAX_LINE_BYTES and not data.endswith(b"\n"):
            while file.tell() < MAX_SCANNED_BYTES and (data := file.readline(1 << 16)):
                if data.endswith(b"\n"):
                    break
            text += " [… the line is longer]"
        yield text


def _opened(path: Path, shown: str) -> BinaryIO:
    """Open a text file. Never block on a pipe, and never follow a link that has come since."""
    try:
        fd = open_file(path)
    except OSError as error:
        raise FileProblem(f"{shown} cannot be read: {error.strerror}.") from error
    status = os.fstat(fd)
    problem = "" if stat.S_ISREG(status.st_mode) else f"{shown} is neither a file nor a folder."
    if stat.S_ISDIR(status.st_mode):
        problem = f"{shown} is a folder: use list."
    elif not problem and b"\0" in (begin := os.pread(fd, SNIFFED_BYTES, 0)):
        problem = f"{shown} is a binary file of {status.st_size:,} bytes: byte {begin.index(0)} is NUL."
    if problem:
        os.close(fd)
        raise FileProblem(problem)
    return os.fdopen(fd, "rb")
