"""Whether a connection on loopback comes from this user: Linux says whose each socket is.

Owns that look into `/proc/net`. Cookies do not know ports, and the address with a ticket stands on a
browser's command line for a moment: another user of this machine could get at either. On Linux what is not
known to be ours is not ours. Other systems do not tell, and there the answer is yes. Does not own what is
refused (`sessions`, `auth`).
"""

import os
import struct
import sys
from ipaddress import IPv4Address
from pathlib import Path

ROOT = 0
# Of a socket that asks and listens for the answer: connected, or with its own end of sending told. In any
# other state the line may be of an older connection from the same port, or of one that only begins.
STATES = ("01", "04", "05")  # ESTABLISHED, FIN_WAIT1, FIN_WAIT2
NOBODYS = "0"  # the inode of a socket that no process has any more; its user is told as root
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LOOKS = 3  # the table is read in pieces, and a line may move from one to the other meanwhile
DOES_TELL = sys.platform == "linux"


def is_same_user(
    client: tuple[str, int] | None, server: tuple[str, int] | None, tables: tuple[Path, ...] = TABLES
) -> bool:
    """Return whether the client's socket is this user's, or root's, who may do anything anyway."""
    if not DOES_TELL:
        return True
    if not client or not server:
        return False
    return any(_owner(client, server, tables) in (os.getuid(), ROOT) for _ in range(LOOKS))


def _owner(client: tuple[str, int], server: tuple[str, int], tables: tuple[Path, ...]) -> int | None:
    """Return the user whose socket is connected from here to there; None if that is not known."""
    try:
        here, there = _written(client), _written(server)
    except ValueError:
        return None
    for table in tables:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):  # a system without IPv6 has one table
            continue
        for fields in map(str.split, lines):
            if len(fields) < 10 or not (fields[1].endswith(here) and fields[2].endswith(there)):
                continue
            if fields[3] in STATES and fields[9] != NOBODYS:
                return int(fields[7])
    return None


def _written(place: tuple[str, int]) -> str:
    """Return an address as the tables have it; of IPv6 the end, which has the IPv4 address."""
    address: int = struct.unpack("=I", IPv4Address(place[0]).packed)[0]
    return f"{address:08X}:{place[1]:04X}"
