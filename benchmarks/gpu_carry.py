"""What is brought to a borrowed GPU that can reach nothing: pieces of files, and wheels for its Python.

Owns the folder `dist/lease`, how a file is cut and joined, and how packages are unpacked there. What is
brought is `gpu_lease`'s and `gpu_peers`'.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEASE = ROOT / "dist" / "lease"
PIECE_BYTES = 46 << 20
PLATFORMS = (
    "manylinux_2_31_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2010_x86_64",
    "any",
)


# ---- here ------------------------------------------------------------------------------------------


def cut(whole: Path, folder: Path) -> int:
    """Write a file as piece-00 … and return how many these are."""
    pieces = 0
    with whole.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            (folder / f"piece-{pieces:02}").write_bytes(piece)
            pieces += 1
    return pieces


def download_wheels(folder: Path, python: str, *wanted: str) -> None:
    """Download wheels for the other machine's Python: those that are named, and not what they need."""
    tags = [f"--platform={each}" for each in PLATFORMS]
    tags += [f"--abi=cp{python}", "--abi=abi3", "--abi=none", f"--python-version={python}"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *tags]
    subprocess.run([*command, "--implementation=cp", "-d", str(folder), *wanted], check=True)


# ---- there -----------------------------------------------------------------------------------------


def keep(work: Path, folder: Path = LEASE) -> None:
    """Move the piece that was carried over to `work`; say which are there."""
    work.mkdir(parents=True, exist_ok=True)
    for piece in sorted(folder.glob("piece-*")):
        shutil.move(piece, work / piece.name)
    print("Here:", *(piece.name[-2:] for piece in sorted(work.glob("piece-*"))))


def join(work: Path, whole: Path) -> int:
    """Make a file of the pieces that are kept, and return how many these are."""
    pieces = sorted(work.glob("piece-*"))
    with whole.open("wb") as file:
        for piece in pieces:
            file.write(piece.read_bytes())
    return len(pieces)


def unpack_wheels(wheels: Path, site: Path, *names: str) -> None:
    """Install packages in a folder of their own, if it is not there: all, or those that are named."""
    if site.exists():
        return
    part = site.with_suffix(".part")
    for wheel in [file for name in names or ("*",) for file in sorted(wheels.glob(f"{name}-*.whl"))]:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(part)
    part.rename(site)
