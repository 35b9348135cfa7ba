"""The settings of a project, `.vivace/config.toml`: what the user may say too, and the project says first.

Owns the few keys that there are. None of them can loosen anything; an unknown one is an error. Read only from
a configuration that is trusted (`store`).
"""

import tomllib
from pathlib import Path

import msgspec

from vivace.agent.trust.project import FOLDER, ProjectFiles
from vivace.agent.trust.store import trusted_project
from vivace.config import Settings
from vivace.errors import ConfigError, ProjectNotTrusted

FILE = f"{FOLDER}/config.toml"


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    test_command: str = ""  # used where the user has none; it runs in the sandbox, as the user's would


def project_settings(project: ProjectFiles) -> ProjectSettings:
    """Return the settings of a trusted project."""
    try:
        text = project.files.get(FILE, b"").decode("utf-8")
        return msgspec.convert(tomllib.loads(text), ProjectSettings)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{FILE} cannot be understood: {error}", "Correct it or move it away.") from error


def with_project_settings(settings: Settings, folder: Path) -> Settings:
    """Return the user's settings with what a trusted project adds; as they are where it is not trusted."""
    if settings.test_command or not (folder / FILE).exists():
        return settings
    try:
        project = trusted_project(settings.state_dir, folder)
    except ProjectNotTrusted:
        return settings
    return settings.having(test_command=project_settings(project).test_command)
