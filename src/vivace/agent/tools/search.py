"""The tool `search`: lines that match a regular expression, in files that `.gitignore` does not leave out.

Owns the command: ripgrep where it is installed, or else our own program (`searching`). Either runs as a child
with limits of time and output, since a pattern may take for ever.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from vivace.agent.permissions.decision import Need, ReadPath
from vivace.agent.permissions.paths import Place, locate
from vivace.agent.tools.base import Arguments, FunctionTool, ToolContext, ToolResult
from vivace.agent.tools.bounded import bounded, printable
from vivace.child_python import module_command
from vivace.errors import FileProblem
from vivace.programs import find_program

SECONDS = 20.0
MAX_MATCHES = 200
MAX_BYTES = 1_000_000
NOTHING, DONE = 1, 0  # exit codes, of ripgrep as of ours


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

    async def run(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        place = locate(context.root, arguments.path)
        command = self._command(arguments, place, context)
        code, output, is_cut = await _output_of(command, locate(context.root, ".").path)
        if code not in (DONE, NOTHING) and not is_cut:
            raise FileProblem(f"The search failed: {printable(output).strip()[-500:]}")
        lines = printable(output).splitlines()
        if not lines:
            return ToolResult("Nothing matches.", "nothing")
        shown = bounded("\n".join(lines[:MAX_MATCHES]))
        more = len(lines) > MAX_MATCHES or is_cut
        cut = (
            f"\n[only the first {min(len(lines), MAX_MATCHES)} matches: search more exactly]" if more else ""
        )
        return ToolResult(shown + cut, f"{min(len(lines), MAX_MATCHES)}{'+' if more else ''} matches")

    def _command(self, arguments: SearchArguments, place: Place, context: ToolContext) -> list[str]:
        inside = os.path.relpath(place.path, locate(context.root, ".").path)
        path = inside if place.is_inside else str(place.path)
        flags = ["--ignore-case"] if arguments.ignore_case else []
        flags += [f"--glob={arguments.glob}"] if arguments.glob else []
        ripgrep = find_program("rg", context.root) if self._ripgrep is None else self._ripgrep
        if not ripgrep:
            return module_command("vivace.agent.tools.searching", *flags, "--", arguments.pattern, path)
        fixed = ["--no-config", "--no-require-git", "--hidden", "--glob=!.git", "--no-follow", "--sort=path"]
        fixed += ["--line-number", "--no-heading", "--with-filename", "--color=never", "--max-columns=500"]
        return [ripgrep, *fixed, *flags, "--regexp", arguments.pattern, "--", path]


async def _output_of(command: list[str], folder: Path) -> tuple[int, bytes, bool]:
    """Run it; return its exit code, its output, and whether it was ended at a limit."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
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
    return process.returncode or 0, bytes(output), is_cut
