"""The trees that requests are about: source packages from the package index, unpacked where an edit may go.

Owns fetching with the user's own pip, the checksum, and unpacking. A source package is fetched by name,
version and hash; pip checks the hash before it asks the package about itself. Nothing is installed.
"""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from vivace.child_python import module_command
from vivace.errors import StartError
from vivace.eval.requests.requests import Project
from vivace.models.sources import SourceFailed, download_by_pip

MAX_BYTES = 2_000_000  # a larger file is no source
Texts = dict[str, str]  # by path in the tree


def fetch_projects(projects: Iterable[Project], folder: Path, say: Callable[[str], None]) -> None:
    """Fetch the source packages that are not in the folder yet. Raise StartError if one cannot be had."""
    for project in projects:
        if not is_here(project, folder):
            say(f"Fetching {project.package} {project.version} from the package index")
            folder.mkdir(parents=True, exist_ok=True)
            _fetch(project, folder)


def is_here(project: Project, folder: Path) -> bool:
    file = folder / project.archive
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == project.sha256


def _fetch(project: Project, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".sdist-", dir=folder) as made:
        scratch = Path(made)
        wanted = scratch / "wanted.txt"
        wanted.write_text(f"{project.package}=={project.version} --hash=sha256:{project.sha256}\n")
        try:
            how = ("--require-hashes", f"--no-binary={project.package}", "--requirement", str(wanted))
            download_by_pip(scratch, *how)
        except SourceFailed as error:
            raise StartError(
                f"{project.package} {project.version} could not be fetched: {error}.",
                "It comes from the package index with pip's own settings; or put its source package as "
                f"{project.archive} into {folder}.",
            ) from error
        [file] = scratch.glob("*.tar.gz")
        file.replace(folder / project.archive)


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack a tree into an empty folder. Return its root: the one folder on top, if there is just one."""
    with tarfile.open(archive) as tree:
        tree.extractall(folder, filter="data")
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def texts_of(folder: Path) -> Texts:
    """Return the texts of a tree. What is no text is left out, since no edit is about it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_BYTES:
            with suppress(UnicodeDecodeError):
                found[str(path.relative_to(folder))] = path.read_bytes().decode("utf-8")
    return found


def read_texts(archive: Path) -> Texts:
    with tempfile.TemporaryDirectory(prefix="vivace-eval-") as made:
        return texts_of(unpacked(archive, Path(made) / "tree"))


def environment_for(packages: Iterable[str], folder: Path, say: Callable[[str], None]) -> Path:
    """Return a virtual environment with these packages, made by pip if it is not there yet."""
    wanted = sorted(packages)
    made = folder / hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:16]
    if made.is_dir():
        return made
    say(f"Making an environment for tests: {', '.join(wanted)}")
    part = made.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(module_command("venv", "--without-pip", str(part)), check=True, capture_output=True)
        target = ["--python", str(part / "bin" / "python"), "install", "--quiet", "--no-input"]
        if wanted:
            subprocess.run(
                module_command("pip", *target, *wanted), check=True, capture_output=True, text=True
            )
    except subprocess.CalledProcessError as error:
        raise StartError(
            f"The packages of the tests could not be installed: {error.stderr}", "See pip's own message."
        ) from error
    part.rename(made)
    return made
