"""Where the process that holds a conversation listens, and who may speak to it.

Owns the socket's path, which both sides find alone, and the check that the other side is the same user. Does
not own what is said (`wire`).
"""

import contextlib
import hashlib
import os
import socket
import stat
import struct
import sys
from pathlib import Path

MAX_PATH_BYTES = 100  # of a socket: macOS takes 104 with the final zero, Linux 108
_LOCAL_PEERCRED, _XUCRED_BYTES = 1, 76  # of macOS, whose level for local sockets is 0


def socket_of(transcript: Path) -> Path:
    """Return a conversation's socket: beside its transcript, or in a short folder if that is too long."""
    beside = transcript.with_suffix(".sock")
    if len(os.fsencode(beside)) <= MAX_PATH_BYTES:
        return beside
    mark = hashlib.sha256(os.fsencode(transcript.parent)).hexdigest()[:12]
    return Path("/tmp", f"vivace-{os.getuid()}-{mark}", beside.name)


def make_room(path: Path) -> None:
    """Make the socket's folder. Raise OSError unless it is this user's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(path.parent)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path.parent} is open to other users")


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the other side is this user, as far as the system tells."""
    with contextlib.suppress(OSError):
        if hasattr(socket, "SO_PEERCRED"):
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return bool(struct.unpack("3i", found)[1] == os.getuid())
        if sys.platform == "darwin":
            found = connection.getsockopt(0, _LOCAL_PEERCRED, _XUCRED_BYTES)
            return bool(struct.unpack_from("2I", found)[1] == os.getuid())
        return True  # the folder and the socket's mode keep others out
    return False
