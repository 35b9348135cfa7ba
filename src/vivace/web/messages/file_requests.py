"""What a face asks about the files of its folder, and what it says about those that it has open.

Owns the shapes. Does not own which files a face may see (`web.files`).
"""

from vivace.web.messages.request import Request


class FilesTree(Request, frozen=True, tag="files.tree"):
    """List the files below a folder, without those that Git ignores."""

    folder: str = ""  # relative to the face's folder


class FilesFind(Request, frozen=True, tag="files.find"):
    """Find files whose path has these letters in this order, the best first."""

    words: str
    limit: int = 50


class FilesRead(Request, frozen=True, tag="files.read"):
    """Read a text file. The answer has its digest."""

    path: str  # relative to the face's folder, or absolute in it


class FilesWrite(Request, frozen=True, tag="files.write"):
    """Write a text file. Refused with `changed` if the file on disk has another digest."""

    path: str
    text: str
    digest: str  # of the text that was changed; "": there is no such file yet


class FilesWatch(Request, frozen=True, tag="files.watch"):
    """Tell when one of these files changes on disk. It replaces what was watched before."""

    paths: list[str]


class BuffersSet(Request, frozen=True, tag="buffers.set"):
    """Offer the unsaved text of a file: edits and mentions read it in place of the file."""

    path: str
    text: str | None  # null: the file counts again
