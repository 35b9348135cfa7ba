"""The tool `list`: files and folders, without those that `.gitignore` leaves out.

Owns how the listing looks and where it is cut. Does not own the walk (`ignoring`).
"""

import asyncio
import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from vivace.agent.door import real_path, status_of
from vivace.agent.permissions.decision import Need, ReadPath
from vivace.agent.permissions.paths import Place, locate
from vivace.agent.tools.base import Arguments, FunctionTool, ToolContext, ToolResult, judged
from vivace.agent.tools.bounded import printable
from vivace.agent.tools.ignoring import walk
from vivace.errors import FileProblem

MAX_ENTRIES = 800
MAX_WALKED = 100_000
MAX_WALK_S = 10.0


class ListArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="a folder, relative to the workspace")] = "."
    glob: Annotated[str, Meta(description="only files whose path or name matches, such as *.py")] = ""
    depth: Annotated[int, Meta(ge=1, description="how many levels of folders are shown")] = 3


class ListFiles(FunctionTool[ListArguments]):
    name: ClassVar[str] = "list"
    description: ClassVar[str] = "List files and folders. What .gitignore leaves out is left out."
    is_read_only: ClassVar[bool] = True
    arguments = ListArguments

    def needs(self, arguments: ListArguments, context: ToolContext) -> list[Need]:
        return [ReadPath(locate(context.root, arguments.path))]

    def title(self, arguments: ListArguments) -> str:
        return f"{arguments.path} {arguments.glob}".strip()

    async def run(self, arguments: ListArguments, context: ToolContext, needs: Sequence[Need]) -> ToolResult:
        place = judged(needs)[arguments.path]
        return await asyncio.to_thread(_list, arguments, place, real_path(context.root))


def _list(arguments: ListArguments, place: Place, workspace: Path) -> ToolResult:
    try:
        is_folder = stat.S_ISDIR(status_of(place.path).st_mode)
    except OSError as error:
        raise FileProblem(f"{arguments.path} cannot be listed: {error.strerror}.") from error
    if not is_folder:
        raise FileProblem(f"{arguments.path} is not a folder.")
    root, start = place.path, ""
    if place.path.is_relative_to(workspace):
        root, start = workspace, os.path.relpath(place.path, workspace)
    found: list[str] = []
    try:
        is_cut = _listed(walk(root, "" if start == "." else start, MAX_WALK_S), start, arguments, found)
    except TimeoutError:
        is_cut = True
    if not found and not is_cut:
        return ToolResult(f"There is nothing in {arguments.path} that matches.", "nothing")
    cut = f"\n[only the first {len(found)}: name a folder or a glob]" if is_cut else ""
    return ToolResult("\n".join(found) + cut, f"{len(found)} entries")


def _listed(
    entries: Iterator[tuple[str, bool]], start: str, arguments: ListArguments, found: list[str]
) -> bool:
    """Add the lines to what was found. Return whether there are more."""
    above = 0 if start in ("", ".") else start.count("/") + 1
    for walked, (path, is_folder) in enumerate(entries):
        if walked >= MAX_WALKED:
            return True
        if not arguments.glob and path.count("/") - above >= arguments.depth:
            continue
        if arguments.glob and (is_folder or not _matches(path, arguments.glob)):
            continue
        if len(found) >= MAX_ENTRIES:
            return True
        found.append(printable(f"{path}/" if is_folder else path).replace("\n", "\ufffd"))
    return False


def _matches(path: str, glob: str) -> bool:
    return fnmatch.fnmatch(path, glob) or fnmatch.fnmatch(path.rpartition("/")[2], glob)
