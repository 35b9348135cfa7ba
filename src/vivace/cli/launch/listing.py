"""Which clients are on this machine, in which version, and how to install the others.

Owns looking and the words. Does not own the facts of a client (`clients`).
"""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from vivace.cli.launch.clients import CLIENTS, Client
from vivace.programs import find_program

ASK_S = 20.0
VERSION = re.compile(r"(?<!\d)\d++(?:\.\d+)+")


def listed() -> Iterator[str]:
    """Return a line for each client. All are asked for their versions at once."""
    found = {name: find_program(client.program) for name, client in CLIENTS.items()}
    with ThreadPoolExecutor(len(found)) as threads:
        versions = dict(zip(found, threads.map(_version, found.values()), strict=True))
    for name, client in CLIENTS.items():
        yield f"{name:<9} {_told(client, found[name], versions[name])}"


def not_installed(client: Client) -> str:
    return f"{client.title} is not installed: {client.install}"


def _told(client: Client, program: str | None, version: str) -> str:
    if program is None:
        return not_installed(client)
    return f"{client.title} {version or '(says no version)'}, {program}; tested with {client.tested}"


def _version(program: str | None) -> str:
    """Return what a program says of itself, or "" if it says nothing in time."""
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = VERSION.search(done.stdout or done.stderr)
    return found[0] if found else ""
