"""Names of models on the hub: `hf:OWNER/REPO`, `hf:OWNER/REPO:FILE.gguf`, `hf:OWNER/REPO:Q4_K_M`.

Owns how such a name is read, and what may stand in it: parts of it become folders and URLs.
"""

import re

import msgspec

from vivace.errors import UsageError

PREFIX = "hf:"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_FORMAT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_PATH_PART = re.compile(r"[A-Za-z0-9][\w .+()=@-]{0,199}", re.ASCII)


class HubName(msgspec.Struct, frozen=True):
    repo: str  # OWNER/REPO
    wanted: str = ""  # a file's path, or a format of weights such as Q4_K_M; "": the usual one

    @property
    def is_file(self) -> bool:
        return self.wanted.endswith(".gguf")

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}:{self.wanted}" if self.wanted else f"{PREFIX}{self.repo}"


def is_hub_name(name: str) -> bool:
    return name.startswith(PREFIX)


def read_name(name: str) -> HubName:
    """Read a name that begins with `hf:`; raise `UsageError` if it is none."""
    repo, _, wanted = name.removeprefix(PREFIX).partition(":")
    is_wanted = not wanted or is_safe_path(wanted) or _FORMAT.fullmatch(wanted)
    if not _REPO.fullmatch(repo) or ".." in repo or not is_wanted:
        raise UsageError(
            f"{name[:200]!r} is not the name of a model on the hub.",
            "It looks like hf:OWNER/REPO, hf:OWNER/REPO:FILE.gguf or hf:OWNER/REPO:Q4_K_M.",
        )
    return HubName(repo, wanted)


def is_safe_path(path: str) -> bool:
    """Return whether a path in a repository is a GGUF file and can be one in our folder."""
    parts = path.split("/")
    return path.endswith(".gguf") and len(parts) <= 8 and all(map(_is_safe_part, parts))


def _is_safe_part(part: str) -> bool:
    return bool(_PATH_PART.fullmatch(part)) and not part.endswith((" ", "."))
