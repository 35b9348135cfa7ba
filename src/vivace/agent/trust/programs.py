"""Which files of a project a server's command line would run: named in it, read by it, or loaded by those.

Owns the search. It finds too much rather than too little: whatever looks like a path or a module and is a
file of the project counts. What it cannot know is said in words, for the person who is asked. Does not own
which programs read what (`runners`), nor trust (`store`).
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.mcp.servers import McpServer
from vivace.agent.trust.runners import LOADS, runner_of

MAX_DEPTH = 2  # files that are named by one that is named by one of the command line are the last
MAX_FILES = 400  # of one command line
MAX_LOOKS = 100_000  # at names that may be files: about a second
MAX_FOLLOWED_BYTES = 256 << 10  # of a file that is read for what it loads
MAX_PARTS = 2_000  # of such a file
TOO_MANY = "files beyond the first hundreds that it loads"

_BETWEEN = re.compile(r"[\s=:,;|&<>()\[\]{}\"'`!]+")
_VARIABLE_FIRST = re.compile(r"^(?:\$\{?\w+\}?|~)/")
_OPTION_GLUED = re.compile(r"^--?[\w-]*?(?=\.{0,2}/)|^-[A-Za-z](?=[\w.])|^@")
_FLAGS_GLUED = re.compile(r"-[A-Za-z]{2,8}(?=[\w.])")  # such as -Im in front of a module
_MODULE = re.compile(r"\A[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_IMPORTS = re.compile(
    r"(?m)(?:^|;)[ \t\f]*"
    r"(?:from[ \t\f]+([\w.]*)[ \t\f]+import[ \t\f]+([\w, (*]+)|import[ \t\f]+([\w., ]+))"
)
_ENTRY_POINT = re.compile(r"[\"']([A-Za-z_][\w.]*):[A-Za-z_]\w*[\"']")
_SUFFIXES = (
    "",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".mts",
    ".tsx",
    ".py",
    ".sh",
    "/index.js",
    "/index.mjs",
    "/index.ts",
)
_FOLDER_MAINS = ("__main__.py", "index.js", "index.mjs", "index.cjs", "index.ts", "package.json")
_CODE_NAMES = (
    "py pyw js mjs cjs jsx ts mts cts tsx sh bash zsh fish rb pl pm php lua mk toml yml yaml json gradle kts",
    "nix rs go java ps1 bat env just rake cfg ini",
)
_CODE = frozenset(f".{name}" for line in _CODE_NAMES for name in line.split())
_NOT_FOLLOWED = frozenset(("node_modules", ".git", ".venv", "venv", "site-packages"))


@dataclass
class Programs:
    """What was found for one command line."""

    files: dict[str, str] = field(default_factory=dict)  # path below the root -> sha-256
    changes: list[str] = field(default_factory=list)  # what can become another thing without a question


def programs_of(root: Path, server: McpServer) -> Programs:
    """Return the files of the project that the server's command would run, as far as that can be found."""
    return _Search(root, server).run() if server.command else Programs()


def program_digest(path: Path) -> str:
    """Return the hash of a program as it is now, of any size."""
    try:
        fd = os.open(os.path.realpath(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return "it cannot be read"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return "it is no plain file"
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return "it cannot be read"


class _Search:
    def __init__(self, root: Path, server: McpServer) -> None:
        self._root = root
        self._server = server
        self._bases = [root]  # folders from which names are meant
        self._found = Programs()
        self._waiting: list[tuple[Path, int]] = []  # files that were found and not read yet, and how deep
        self._depth = 0  # of what is looked for now: 0 for what the command line names
        self._looks = 0
        self._listed: dict[str, frozenset[str]] = {}  # what is in which folder
        self._has_runner = False
        self._takes_folders = False

    def run(self) -> Programs:
        line = [self._server.command, *self._server.args, *self._server.env.values()]
        parts = [part for word in line for part in _parts_of(word)]
        self._bases += [path for part in parts if (path := self._folder(part)) is not None]
        for part in parts:
            self._take_runner(part)
        self._take_command()
        for part in parts:
            self._take_path(part, is_named=True)
            self._take_module(part)
        for word in line:
            self._take_imports(word, self._root)
        while self._waiting:
            path, self._depth = self._waiting.pop(0)
            self._follow(path)
        if self._found.files and not self._found.changes:
            self._say(LOADS)
        return self._found

    # ---- the command line -------------------------------------------------------------------------

    def _take_runner(self, part: str) -> None:
        if (runner := runner_of(part)) is None:
            return
        self._has_runner = True
        self._takes_folders |= runner.takes_folders
        self._say(runner.changes)
        for base in self._bases:
            for name in runner.files:
                self._add(base / name)
        self._bases += [path for name in runner.folders if (path := self._folder(name)) is not None]

    def _take_command(self) -> None:
        """Take a program that the path of programs finds in the project."""
        command = self._server.command
        if "/" in command:
            return
        for entry in (self._server.env.get("PATH") or os.environ.get("PATH", "")).split(":"):
            self._add(self._root / _VARIABLE_FIRST.sub("", entry) / command)

    def _take_path(self, part: str, *, is_named: bool, near: Path | None = None) -> None:
        """Take the files that a part of a line may name."""
        is_whole = Path(part).suffix in _CODE or not (self._has_runner or near)
        for base in [*self._bases, *([near] if near else [])]:
            for suffix in ("",) if is_whole else _SUFFIXES:
                if part and self._add(f"{base}/{part}{suffix}", is_named=is_named) and not suffix:
                    return
            if self._takes_folders and is_named and part:
                for name in _FOLDER_MAINS:
                    self._add(base / part / name)

    # ---- modules of Python --------------------------------------------------------------------------

    def _take_module(self, name: str, near: Path | None = None) -> None:
        if not _MODULE.match(name):
            return
        parts = name.split(".")
        for base in [*self._bases, self._root / "src", *([near] if near else [])]:
            for count in range(1, len(parts) + 1):
                stem = base.joinpath(*parts[:count])
                self._add(stem / "__init__.py")
                self._add(stem.with_name(f"{stem.name}.py"))
            self._add(base.joinpath(*parts, "__main__.py"))

    def _take_imports(self, code: str, folder: Path) -> None:
        for source, names, modules in _IMPORTS.findall(code):
            if source:
                dots = len(source) - len(source.lstrip("."))
                near = folder.joinpath(*[".."] * max(0, dots - 1))
                module = source.lstrip(".")
                found = [part.strip(" (*") for part in names.split(",")]
                for name in [module, *(f"{module}.{each}".strip(".") for each in found)]:
                    self._take_module(name, near)
            else:
                for each in modules.split(","):
                    self._take_module(each.split(" as ")[0].strip(), folder)

    # ---- what files load ----------------------------------------------------------------------------

    def _follow(self, path: Path) -> None:
        """Take what a program of the project names itself."""
        try:
            if path.stat().st_size > MAX_FOLLOWED_BYTES:
                return
            text = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            return
        if path.suffix in (".py", ".pyw", ""):
            self._take_imports(text, path.parent)
        for entry in _ENTRY_POINT.findall(text):
            self._take_module(entry, path.parent)
        for part in sorted({part for part in _parts_of(text) if "/" in part or "." in part})[:MAX_PARTS]:
            self._take_path(part, is_named=False, near=path.parent)

    def _add(self, path: Path | str, *, is_named: bool = True) -> bool:
        """Take a file, if it is one of the project. Those that are only mentioned must look like code."""
        self._looks += 1
        name = os.path.normpath(path)
        folder, _, last = name.rpartition("/")
        if self._looks > MAX_LOOKS or last not in self._names_in(folder) or not _is_file(name):
            self._say(TOO_MANY if self._looks > MAX_LOOKS else "")
            return False
        inside = name[len(str(self._root)) + 1 :]
        if inside in self._found.files:
            return True
        if not is_named and not _is_code(name):
            return False
        if len(self._found.files) >= MAX_FILES:
            self._say(TOO_MANY)
            return True
        self._found.files[inside] = program_digest(Path(name))
        is_ours = not _NOT_FOLLOWED & set(inside.split("/")) and "lock" not in last
        if is_ours and self._depth < MAX_DEPTH:
            self._waiting.append((Path(name), self._depth + 1))
        return True

    def _names_in(self, folder: str) -> frozenset[str]:
        """Return what is in a folder of the project; nothing of one elsewhere."""
        if folder not in self._listed:
            is_inside = folder == str(self._root) or folder.startswith(f"{self._root}/")
            try:
                entries = os.scandir(folder) if is_inside else ()
                self._listed[folder] = frozenset(each.name for each in entries)
            except (OSError, ValueError):
                self._listed[folder] = frozenset()
        return self._listed[folder]

    def _say(self, change: str) -> None:
        if change and change not in self._found.changes:
            self._found.changes.append(change)

    def _folder(self, part: str) -> Path | None:
        """Return a folder of the project that a part of the line names."""
        path = Path(os.path.normpath(self._root / part))
        try:
            is_folder = self._root in path.parents and stat.S_ISDIR(path.stat().st_mode)
        except (OSError, ValueError):
            return None
        return path if is_folder else None


def _parts_of(text: str) -> Iterator[str]:
    """Yield everything in a word, a line of a shell or a file that may be a path, a program or a module."""
    whole = [text] if len(text) < 4096 else []
    for part in [*whole, *_BETWEEN.split(text)]:
        glued = _FLAGS_GLUED.match(part)
        flagged = [part[at:] for at in range(3, glued.end() + 1)] if glued else []
        for each in (part, _OPTION_GLUED.sub("", part, count=1), *flagged):
            cut = _VARIABLE_FIRST.sub("", each)
            if 0 < len(cut) < 4096 and "\0" not in cut:
                yield cut


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):  # too long, a loop of links, not to be seen
        return False


def _is_code(path: str) -> bool:
    return Path(path).suffix in _CODE or os.access(path, os.X_OK)
