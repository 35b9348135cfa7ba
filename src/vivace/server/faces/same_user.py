"""Whether a connection on loopback comes from this user: Linux says whose each socket is.

Owns that look into `/proc/net`. Cookies do not know ports, and the address with a ticket stands on a
browser's command line for a moment: another user of this machine could get at either. Where the system
does not tell, the answer is yes. Does not own what is refused (`sessions`, `auth`).
"""

import os
import struct
from ipaddress import IPv4Address
from pathlib import Path

ROOT = 0
ESTABLISHED = "01"
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def is_same_user(
    client: tuple[str, int] | None, server: tuple[str, int] | None, tables: tuple[Path, ...] = TABLES
) -> bool:
    """Return False if the client's socket is known to be another user's. Root may do anything anyway."""
    owner = _owner(client, server, tables) if client and server else None
    return owner in (None, os.getuid(), ROOT)


def _owner(client: tuple[str, int], server: tuple[str, int], tables: tuple[Path, ...]) -> int | None:
    """Return the user whose socket is connected from here to there; None if that is not known."""
    try:
        here, there = _written(client), _written(server)
        for table in tables:
            for line in table.read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(here) and fields[2].endswith(there) and fields[3] == ESTABLISHED:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _written(place: tuple[str, int]) -> str:
    """Return an address as the tables have it; of IPv6 the end, which has the IPv4 address."""
    address: int = struct.unpack("=I", IPv4Address(place[0]).packed)[0]
    return f"{address:08X}:{place[1]:04X}"
