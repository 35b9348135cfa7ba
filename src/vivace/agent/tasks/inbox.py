"""What people say to a task while it runs: lines in a file that its process watches.

Owns the file. What is in it is not lost when the process dies: the log says up to which line it was read
(`MessageTaken`), and the next process goes on from there. A file, and no socket, since it needs nobody at the
other end; looking at its size 20 times a second costs nothing. Does not own what a message does (`working`).
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Literal

import msgspec

from vivace.errors import WriteProblem

POLL_S = 0.05


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: Literal["steer", "answer", "stop"]
    text: str = ""  # of a steer; of a no, its reason
    is_allowed: bool = False  # of an answer
    call_id: str = ""  # of an answer: what was asked about
    digest: str = ""  # of an answer: just what the person saw
    at_s: float = 0.0


def put(file: Path, message: Message) -> int:
    """Add a message, durable. Return its number."""
    line = msgspec.json.encode(msgspec.structs.replace(message, at_s=time.time())) + b"\n"
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            before = file.read_bytes()
            if before and not before.endswith(b"\n"):  # its writer was killed
                line = b"\n" + line
            os.write(fd, line)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise WriteProblem(f"{file} could not be written: {error.strerror}.", "Nothing was said.") from error
    return (before + line).count(b"\n")


def read_after(file: Path, number: int) -> list[tuple[int, Message]]:
    """Return the messages behind this number, each with its own. What is no message is passed over."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    found = []
    for at, line in enumerate(lines[number:], number + 1):
        try:
            found.append((at, msgspec.json.decode(line, type=Message)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
