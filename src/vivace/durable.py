"""A small file that is the old one or the new one, whenever the power goes.

Owns the order: beside the file, fsync, rename. Does not own what is in the file, nor files of the user
(`agent.edits.apply.replacing`).
"""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write all of it, or leave the old file. The folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
