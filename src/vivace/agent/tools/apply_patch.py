"""The tool `apply_patch`: a patch of several files, in the format of the Codex CLI.

Owns where a chunk belongs in a file. All of a patch is taken or nothing: a chunk that fits nowhere refuses
the whole. Does not own the format (`patch_format`), nor when files are written (`writes`).
"""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.permissions.decision import Need, WritePath
from vivace.agent.permissions.paths import Place, locate
from vivace.agent.tools.base import MalformedCall, ToolContext, ToolResult, judged, named_path
from vivace.agent.tools.matching import starts_of
from vivace.agent.tools.patch_format import (
    ADD,
    DELETE,
    END_OF_FILE,
    MOVE,
    UPDATE,
    AddFile,
    Chunk,
    DeleteFile,
    FilePatch,
    UpdateFile,
    parse_patch,
)
from vivace.agent.tools.writes import Writes
from vivace.errors import EditRejected

_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\u00a0": " "})
# How lines are compared, the strictest first.
WAYS: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    lambda line: line.rstrip(),
    lambda line: line.strip(),
    lambda line: unicodedata.normalize("NFKC", line.translate(_QUOTES)).strip(),
)


class ApplyPatch:
    """A custom tool: its input is the patch itself, not JSON."""

    name: ClassVar[str] = "apply_patch"
    is_read_only: ClassVar[bool] = False
    taints: ClassVar[bool] = True
    stages: ClassVar[bool] = True
    description: ClassVar[str] = """Change files by a patch:
*** Begin Patch
*** Update File: path
@@ def the_function_around():
 a line that stays
-a line that goes
+a line that comes
*** Add File: path
+every line of the new file
*** Delete File: path
*** End Patch
Paths are relative to the workspace. Give three lines around each change."""

    def definition(self) -> dict[str, Any]:
        return {"type": "custom", "name": self.name, "description": self.description}

    def parse(self, given: str) -> list[FilePatch]:
        try:
            return parse_patch(given)
        except EditRejected as error:
            raise MalformedCall(f"{error.message} {error.hint}") from error

    def needs(self, arguments: list[FilePatch], context: ToolContext) -> list[Need]:
        return [WritePath(locate(context.root, path)) for path in _paths(arguments)]

    def title(self, arguments: list[FilePatch]) -> str:
        return ", ".join(_paths(arguments))

    def exact(self, arguments: list[FilePatch]) -> str:
        return "\n".join(line for patch in arguments for line in _lines_of(patch))

    async def run(
        self, arguments: list[FilePatch], context: ToolContext, needs: Sequence[Need]
    ) -> ToolResult:
        places = judged(needs)
        await context.writes.files.refresh([place.path for place in places.values()])
        staged = dict(context.writes.staged)
        try:
            told = [_apply(patch, places, context.writes) for patch in arguments]
        except Exception:
            context.writes.staged = staged
            raise
        return ToolResult("\n".join(told), ", ".join(_paths(arguments)))


def _lines_of(patch: FilePatch) -> Iterator[str]:
    """Yield the patch as it was understood, which is what is applied."""
    match patch:
        case AddFile(path, text):
            yield f"{ADD}{named_path(path)}"
            yield from (f"+{line}" for line in text.split("\n"))
        case DeleteFile(path):
            yield f"{DELETE}{named_path(path)}"
        case UpdateFile(path, chunks, moved_to):
            yield f"{UPDATE}{named_path(path)}"
            if moved_to:
                yield f"{MOVE}{named_path(moved_to)}"
            for chunk in chunks:
                yield from (f"@@ {header}" for header in chunk.headers or ("",))
                yield from (f"-{line}" for line in chunk.old)
                yield from (f"+{line}" for line in chunk.new)
                if chunk.is_at_end:
                    yield END_OF_FILE


def _paths(patches: Sequence[FilePatch]) -> list[str]:
    moved = [patch.moved_to for patch in patches if isinstance(patch, UpdateFile) and patch.moved_to]
    return list(dict.fromkeys([*(patch.path for patch in patches), *moved]))


def _apply(patch: FilePatch, places: Mapping[str, Place], writes: Writes) -> str:
    place = places[patch.path]
    match patch:
        case AddFile(path, text):
            if writes.exists(place):
                raise EditRejected(f"{path} exists already.", "Update it instead.")
            writes.put(place, text.encode("utf-8", "replace"))
            return f"Added {path}."
        case DeleteFile(path):
            writes.read(place)
            writes.put(place, None)
            return f"Deleted {path}."
        case UpdateFile(path, chunks, moved_to):
            new_bytes = patched(writes.read(place), chunks)
            if not moved_to:
                writes.put(place, new_bytes)
                return f"Updated {path}."
            return _moved(place, places[moved_to], new_bytes, writes)


def _moved(place: Place, target: Place, new_bytes: bytes, writes: Writes) -> str:
    if writes.exists(target):
        raise EditRejected(f"{target.shown} exists already.", "Choose another name, or delete it first.")
    writes.put(target, new_bytes)
    writes.put(place, None)
    return f"Moved {place.shown} to {target.shown}."


def patched(source: SourceFile, chunks: Sequence[Chunk]) -> bytes:
    """Return the file's bytes with all chunks in place. They stand in the order of the file."""
    at = 0  # lines that are done
    for number, chunk in enumerate(chunks, 1):
        for header in chunk.headers:
            at = _find(source.lines, (header,), at, number, chunk) + 1
        start = _start_of(source.lines, chunk, at, number)
        source = source.with_bytes(
            splice(source, start + 1, start + len(chunk.old), "".join(f"{line}\n" for line in chunk.new)),
        )
        at = start + len(chunk.new)
    return source.raw


def _start_of(lines: Sequence[str], chunk: Chunk, at: int, number: int) -> int:
    """Return the index of the chunk's first line."""
    if chunk.old:
        return _find(lines, chunk.old, at, number, chunk)
    return at if chunk.headers and not chunk.is_at_end else len(lines)


def _find(lines: Sequence[str], wanted: Sequence[str], at: int, number: int, chunk: Chunk) -> int:
    """Return where the lines stand, from `at` on. Raise EditRejected if they do not."""
    for way in WAYS:
        same = [way(line) for line in wanted]
        if starts := starts_of(same, [way(line) for line in lines[at:]]):
            return at + starts[-1 if chunk.is_at_end else 0]
    shown = "\n".join(wanted[:8])
    where = f" behind line {at}" if at else ""
    raise EditRejected(
        f"Chunk {number}: these lines are not in the file{where}:\n{shown}",
        "Read the file again and copy the lines as they are. Chunks stand in the order of the file.",
    )
