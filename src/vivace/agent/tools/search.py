"""The tool `search`: lines that match a regular expression, in files that `.gitignore` does not leave out.

Owns the command: ripgrep where it is installed, or else our own program (`searching`). Either runs as a child
with limits of time and output, since a pattern may take for ever. A folder is searched by its path, so what
the child has found is told only as far as it is confirmed (`confirming`).
"""

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from vivace.agent.door import open_file, real_path, status_of
from vivace.agent.permissions.decision import Need, ReadPath
from vivace.agent.permissions.paths import Place, locate
from vivace.agent.tools.base import Arguments, FunctionTool, ToolContext, ToolResult, judged
from vivace.agent.tools.bounded import bounded, printable
from vivace.agent.tools.confirming import confirmed, records_in
from vivace.agent.tools.searching import STDIN
from vivace.child_python import module_command
from vivace.errors import FileProblem
from vivace.programs import find_program

SECONDS = 20.0
MAX_MATCHES = 200
MAX_BYTES = 1_000_000
MAX_COMPLAINT_BYTES = 16_000
IS_BINARY = b"binary file matches"  # as ripgrep says it
NOTHING, DONE = 1, 0  # exit codes, of ripgrep as of ours


@dataclass(frozen=True)
class Said:
    """What the child has written."""

    output: bytes
    is_cut: bool


@dataclass(frozen=True)
class Found:
    lines: list[str]
    is_cut: bool


class SearchArguments(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(description="a regular expression")]
    path: Annotated[str, Meta(description="a file or folder, relative to the workspace")] = "."
    glob: Annotated[str, Meta(description="only in files whose name matches, such as *.py")] = ""
    ignore_case: bool = False


class Search(FunctionTool[SearchArguments]):
    name: ClassVar[str] = "search"
    description: ClassVar[str] = (
        "Search files for a regular expression. Gives path:line:text. What .gitignore leaves out is left out."
    )
    is_read_only: ClassVar[bool] = True
    arguments = SearchArguments

    def __init__(self, ripgrep: str | None = None) -> None:
        """Use this ripgrep; "" for our own program, None for whatever there is."""
        self._ripgrep = ripgrep

    def needs(self, arguments: SearchArguments, context: ToolContext) -> list[Need]:
        return [ReadPath(locate(context.root, arguments.path))]

    def title(self, arguments: SearchArguments) -> str:
        where = "" if arguments.path == "." else f" in {arguments.path}"
        return f"{arguments.pattern}{where} {arguments.glob}".strip()

    async def run(
        self, arguments: SearchArguments, context: ToolContext, needs: Sequence[Need]
    ) -> ToolResult:
        place, root = judged(needs)[arguments.path], real_path(context.root)
        found = await (self._in_file if _is_file(place) else self._in_folder)(arguments, place, root)
        if not found.lines:
            return ToolResult("Nothing matches.", "nothing")
        lines, is_cut = found.lines[:MAX_MATCHES], found.is_cut or len(found.lines) > MAX_MATCHES
        shown = bounded(printable("\n".join(lines)))
        cut = f"\n[only the first {len(lines)} matches: search more exactly]" if is_cut else ""
        return ToolResult(shown + cut, f"{len(lines)}{'+' if is_cut else ''} matches")

    async def _in_file(self, arguments: SearchArguments, place: Place, root: Path) -> Found:
        """Search the file that was judged: it is opened here, and read by the child."""
        name = _name_in(root, place)
        opened = _opened(place)
        try:
            said = await _output_of(self._command(arguments, root, STDIN, ""), root, opened)
        finally:
            os.close(opened)
        lines = [f"{name}:{each.number}:{each.text}" for each in records_in(said.output)]
        if not lines and IS_BINARY in said.output:
            lines = [f"{name} is a binary file that matches."]
        return Found(lines, is_cut=said.is_cut)

    async def _in_folder(self, arguments: SearchArguments, place: Place, root: Path) -> Found:
        command = self._command(arguments, root, _name_in(root, place), arguments.glob)
        said = await _output_of(command, root)
        lines = await asyncio.to_thread(confirmed, records_in(said.output), place, root, MAX_MATCHES + 1)
        return Found(lines, is_cut=said.is_cut)

    def _command(self, arguments: SearchArguments, root: Path, path: str, glob: str) -> list[str]:
        flags = ["--ignore-case"] if arguments.ignore_case else []
        flags += [f"--glob={glob}"] if glob else []
        ripgrep = find_program("rg", root) if self._ripgrep is None else self._ripgrep
        if not ripgrep:
            return module_command("vivace.agent.tools.searching", *flags, "--", arguments.pattern, path)
        fixed = ["--no-config", "--no-require-git", "--hidden", "--glob=!.git", "--no-follow", "--sort=path"]
        fixed += ["--line-number", "--no-heading", "--with-filename", "--color=never", "--max-columns=500"]
        fixed += ["--null", "--no-messages"]
        return [ripgrep, *fixed, *flags, "--regexp", arguments.pattern, "--", path]


def _name_in(root: Path, place: Place) -> str:
    """Return a path as it is shown: from the workspace on, where it is inside."""
    return os.path.relpath(place.path, root) if place.path.is_relative_to(root) else str(place.path)


def _is_file(place: Place) -> bool:
    try:
        return not stat.S_ISDIR(status_of(place.path).st_mode)
    except OSError as error:
        raise FileProblem(f"{place.shown} cannot be searched: {error.strerror}.") from error


def _opened(place: Place) -> int:
    try:
        opened = open_file(place.path)
    except OSError as error:
        raise FileProblem(f"{place.shown} cannot be searched: {error.strerror}.") from error
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise FileProblem(f"{place.shown} is neither a file nor a folder.")


async def _output_of(command: list[str], folder: Path, stdin: int = asyncio.subprocess.DEVNULL) -> Said:
    """Run it, and end it at a limit. Raise FileProblem if it fails: with its own words, and no match."""
    with tempfile.TemporaryFile() as complaints:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=complaints
        )
        assert process.stdout is not None
        output, is_cut = bytearray(), False
        try:
            async with asyncio.timeout(SECONDS):
                while len(output) < MAX_BYTES and (data := await process.stdout.read(65536)):
                    output += data
                is_cut = len(output) >= MAX_BYTES
        except TimeoutError:
            is_cut = True
        finally:
            if process.returncode is None and (is_cut or not process.stdout.at_eof()):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
        complaints.seek(0)
        complaint = printable(complaints.read(MAX_COMPLAINT_BYTES)).strip()
    if process.returncode not in (DONE, NOTHING) and complaint and not is_cut:
        raise FileProblem(f"The search failed: {complaint[-500:]}")
    return Said(bytes(output), is_cut=is_cut)
