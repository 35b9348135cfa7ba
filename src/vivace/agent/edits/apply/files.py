"""Files as the user of a face sees them: the unsaved buffer where one is open, the file on disk otherwise.

Owns what a path holds now, and whether the face writes an accepted change itself (`Editor`). `Files` is the
disk alone; `OpenFiles` puts buffers in front of it. Does not own what a change is (`rebasing`), nor the order
of writing and recording (`writing`).
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vivace.agent.door import real_path
from vivace.agent.edits.apply.replacing import read_state
from vivace.agent.edits.apply.source import (
    BOM,
    MAX_BYTES,
    SourceFile,
    is_there,
    read_source,
    source_from_bytes,
    split_lines,
)
from vivace.errors import FileProblem, WriteProblem


class Editor(Protocol):
    """A face that has files open and writes accepted changes itself: into its buffers, or through its client.

    Paths are absolute, with symbolic links followed.
    """

    async def read(self, path: Path) -> str | None:
        """Return the text as the user sees it now, or None if that is what the disk has."""
        ...

    async def write(self, path: Path, text: str) -> None:
        """Make this the whole text of the file. Return when it is. Raise WriteProblem if it cannot be."""
        ...


class Files:
    """The files on disk."""

    @property
    def is_written_by_face(self) -> bool:
        return False

    def buffer(self, target: Path) -> bytes | None:
        """Return the bytes of the open buffer of a file whose links were followed; None if there is none."""
        del target
        return None

    def read(self, path: Path, target: Path | None = None) -> SourceFile:
        """Return the file as it is now. Raise FileProblem if it cannot be read.

        `target`: where the path was judged to lead; None: where it leads now.
        """
        data = self.buffer(self._key(path) if target is None else target)
        return read_source(path, target) if data is None else source_from_bytes(path, data, target)

    def state(self, target: Path) -> bytes | None:
        """Return the bytes of a file whose links were followed, or None if there is none."""
        data = self.buffer(target)
        return read_state(target) if data is None else data

    def is_there(self, target: Path) -> bool:
        """Return whether anything is at a path whose links were followed."""
        return self.buffer(target) is not None or is_there(target)

    def exists(self, path: Path) -> bool:
        """Return whether anything is at this path, a link that leads nowhere too."""
        return os.path.lexists(path) or self.buffer(self._key(path)) is not None

    def is_file(self, path: Path) -> bool:
        return path.is_file() or self.buffer(self._key(path)) is not None

    def _key(self, path: Path) -> Path:
        """Return by which path a buffer is known. On disk alone there is none."""
        return path

    async def refresh(self, paths: Iterable[Path]) -> None:
        """Ask the face for the texts of these files, if it has any open."""

    async def write(self, target: Path, data: bytes) -> None:
        """Let the face write a file whose links were followed."""
        raise NotImplementedError


DISK = Files()


@dataclass(frozen=True)
class _Buffer:
    """An open text as the bytes that saving it would give.

    Editors keep a byte order mark and "\\r\\n" out of their texts. What the file on disk has of both is added
    here, and taken away from what the face gets.
    """

    raw: bytes
    lacks_bom: bool = False
    lacks_returns: bool = False

    def for_face(self, data: bytes) -> str:
        text = (data.removeprefix(BOM) if self.lacks_bom else data).decode("utf-8")
        return text.replace("\r\n", "\n") if self.lacks_returns else text


class OpenFiles(Files):
    """Files of which some are open in a face. With an `editor`, the face is asked for their texts."""

    def __init__(self, editor: Editor | None = None, *, writes: bool = True) -> None:
        """`writes`: the editor writes accepted changes itself; or else the journal does."""
        self._editor, self._writes = editor, writes
        self._buffers: dict[Path, _Buffer] = {}

    @property
    def is_written_by_face(self) -> bool:
        return self._editor is not None and self._writes

    def set_buffer(self, path: Path, text: str | None) -> None:
        """Take this unsaved text in place of the file. None: the file on disk counts again."""
        key = _key(path)
        if text is None:
            self._buffers.pop(key, None)
        else:
            self._buffers[key] = _buffer_of(path, text, _on_disk(key))

    def buffer(self, target: Path) -> bytes | None:
        known = self._buffers.get(target)
        return known.raw if known else None

    def _key(self, path: Path) -> Path:
        return _key(path)

    async def refresh(self, paths: Iterable[Path]) -> None:
        if self._editor is None:
            return
        for path in {_key(path) for path in paths}:
            self.set_buffer(path, await self._editor.read(path))

    async def write(self, target: Path, data: bytes) -> None:
        """Let the face write a file. Afterwards its new text is what the file holds.

        The face opens the file by its path. So it is asked only while no part of that has become a link.
        """
        assert self._editor is not None
        is_there(target)
        known = self._buffers.get(target) or _Buffer(b"", lacks_bom=True)
        await self._editor.write(target, known.for_face(data))
        if target in self._buffers or _on_disk(target) != data:
            self._buffers[target] = _Buffer(data, known.lacks_bom, known.lacks_returns)


def _key(path: Path) -> Path:
    try:
        return real_path(path)
    except (OSError, ValueError):  # no file name: whoever reads it says so
        return path


def _buffer_of(path: Path, text: str, disk: bytes | None) -> _Buffer:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        problem = f"The open text of {path} holds half a character, which UTF-8 cannot express."
        raise FileProblem(problem, "Correct it in the editor.") from error
    if len(data) > MAX_BYTES:
        hint = f"The limit is {MAX_BYTES / 1e6:.0f} MB. Split it."
        raise FileProblem(f"{path} is too large: {len(data) / 1e6:.1f} MB.", hint)
    lacks_bom = disk is not None and disk.startswith(BOM) and not data.startswith(BOM)
    lacks_returns = b"\r" not in data and _has_returns_only(disk)
    if lacks_returns:
        data = data.replace(b"\n", b"\r\n")
    return _Buffer((BOM if lacks_bom else b"") + data, lacks_bom, lacks_returns)


def _has_returns_only(disk: bytes | None) -> bool:
    """Return whether every line of a text ends in "\\r\\n"."""
    if not disk or b"\r\n" not in disk:
        return False
    return {end for end in split_lines(disk.decode("utf-8", "replace"))[1] if end} == {"\r\n"}


def _on_disk(path: Path) -> bytes | None:
    """Return the bytes on disk, or None if there is no such file that can be read."""
    try:
        return read_state(path)
    except WriteProblem:
        return None
