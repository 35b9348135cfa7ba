"""What a task may do, as its user or its project says it.

Owns the two words of a mode and the file of a project. A project's policy is a second opinion beside the
user's: the stricter verdict counts (`decision`), so it can never loosen anything and needs no trust. Does not
decide (`decision`).
"""

import tomllib
from pathlib import Path
from typing import Literal, get_args

import msgspec

from vivace.agent.permissions.paths import PROTECTED, normalized
from vivace.errors import ConfigError

# What may be changed: nothing, files in the workspace, or anything.
Access = Literal["read-only", "workspace-write", "full"]
# When a person is asked: before every change and command, only for what the access does not cover, or never.
# Never asked means refused.
Asking = Literal["ask", "on-request", "never"]
ACCESSES: tuple[Access, ...] = get_args(Access)
ASKINGS: tuple[Asking, ...] = get_args(Asking)
PROJECT_FILE = ".vivace/permissions.toml"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    access: Access = "workspace-write"
    asking: Asking = "on-request"
    protected: tuple[str, ...] = ()  # names that are never written, beside those that always are protected

    @property
    def protected_names(self) -> frozenset[str]:
        return PROTECTED | {normalized(name) for name in self.protected}


def project_policy(root: Path) -> Policy | None:
    """Read the policy of a project, if it has one. Raise ConfigError if it cannot be understood."""
    file = root / PROJECT_FILE
    try:
        return msgspec.convert(tomllib.loads(file.read_text("utf-8")), Policy)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file} cannot be understood: {error}", "Correct it or move it away.") from error
