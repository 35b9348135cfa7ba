"""The first program inside the sandbox: checks the mounts, sets the limits, becomes the program to be run.

Runs as a script, outside of the package, with the standard library only. Its first argument is a pipe that
gets one byte when the sandbox stands: if nobody reads it any more, nothing is run. The second argument has
the limits as NAME=VALUE, by comma; the third is a file that says what the mounts of a workspace have to show,
or "-"; the fourth is the version of Landlock, 0 where it would add nothing. The rest is the command.
"""

import os
import resource
import sys

COULD_NOT_START, COMMAND_NOT_FOUND, HUNG_UP = 126, 127, 129
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # Landlock's system calls, on every machine
PATH_BENEATH = 1
REFER, RESOLVE_UNIX = 1 << 13, 1 << 16  # move between folders; find a socket by its path, since version 9


def main(ready: int, limits: str, shown: str, landlock: int, command: list[str]) -> None:
    """Check the mounts, set the limits, say that the sandbox stands, and become the command."""
    if landlock:
        keep_to_own_sockets(landlock)
    if shown != "-":
        with os.fdopen(int(shown), "rb") as file:
            parts = [part.split(b"\0") for part in file.read().split(b"\0\0")]
        (root,), paths, identities, foreign = parts
        if wrong := wrong_mount(root, dict(zip(paths, identities, strict=True)), foreign):
            sys.stderr.write(f"{os.fsdecode(wrong)} changed while the sandbox was built.\n")
            raise SystemExit(COULD_NOT_START)
    for limit in limits.split(","):
        name, _, value = limit.partition("=")
        set_limit(getattr(resource, f"RLIMIT_{name}"), int(value))
    try:
        os.write(ready, b"1")
    except BrokenPipeError:
        raise SystemExit(HUNG_UP) from None
    os.close(ready)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        raise SystemExit(COMMAND_NOT_FOUND) from None


def wrong_mount(root: bytes, shown: dict[bytes, bytes], foreign: list[bytes]) -> bytes:
    """Return the first path whose mount does not show what was judged outside; b"" if all are right.

    Bubblewrap mounts by name, and another command in the folder may swap names meanwhile. What a mount shows
    never changes, so every mount at or below the workspace has to be one that was looked at here.
    """
    right = {}
    for path, identity in shown.items():
        try:
            mount, found = opened(path)
        except OSError:
            return path
        if mount in right or identity not in (found, b"any"):
            return path
        right[mount] = path
    for mount, point in mounts():
        is_below = point == root or point.startswith(root + b"/")
        if is_below and mount not in right and point not in foreign:
            return point
    return b""


def opened(path: bytes) -> tuple[int, bytes]:
    """Return the number of the mount that a path is on, and its identity: DEVICE:INODE."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        told = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            number = int(os.read(told, 1024).partition(b"mnt_id:")[2].split(b"\n", 1)[0])
        finally:
            os.close(told)
        return number, b"%d:%d" % (status.st_dev, status.st_ino)
    finally:
        os.close(descriptor)


def mounts() -> list[tuple[int, bytes]]:
    """Return the number of each mount, and where it is."""
    with open("/proc/self/mountinfo", "rb") as lines:  # noqa: PTH123
        parts = [line.split(b" ") for line in lines]
    return [(int(each[0]), unescaped(each[4])) for each in parts]


def unescaped(point: bytes) -> bytes:
    for code, letter in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        point = point.replace(code, letter)
    return point


def keep_to_own_sockets(version: int) -> None:
    """Forbid sockets of programs outside, also those that are put into the workspace later.

    Sockets that programs inside make can be reached. Raise OSError if the kernel refuses.
    """
    import ctypes  # only here: it takes 5 ms
    import struct

    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "Landlock refused")
        return result

    handled = REFER | (RESOLVE_UNIX if version >= 9 else 0)
    ruleset = call(CREATE_RULESET, struct.pack("=QQQ", handled, 0, 0), ctypes.c_size_t(24), 0)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    call(
        ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", REFER, root), 0
    )  # or else nothing could be moved
    call(RESTRICT_SELF, ruleset, 0)
    os.close(root)
    os.close(ruleset)


def set_limit(kind: int, value: int) -> None:
    """Set one limit. A process that is out of processor time has a second more before it is killed."""
    hard = value + 1 if kind == resource.RLIMIT_CPU else value
    resource.setrlimit(kind, (value, hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
