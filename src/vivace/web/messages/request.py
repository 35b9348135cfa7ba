"""What every request of a face is, and the two that come before all others: who it is, and its folder.

Owns the protocol's version. Does not own the other requests (`requests` lists all).
"""

import msgspec

VERSION = 1  # of this protocol; a change that an old face would misunderstand gets a new one


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """What all requests are."""

    id: int


class Hello(Request, frozen=True, tag="hello"):
    """Say who you are, first of all. The answer is `Welcome`."""

    version: int = VERSION
    face: str = "browser"  # a name that people see in other faces
    folder: str = ""  # to work in; "": the one that the host was opened with last


class FolderOpen(Request, frozen=True, tag="folder.open"):
    """Work in another folder from now on. Files and new conversations are there."""

    path: str  # absolute, or from `~`
