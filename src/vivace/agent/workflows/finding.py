"""Which workflows there are: those of the project, of the user, and those that come with the program.

Owns the places and their order: the project's before the user's before ours. A project's is read only from a
configuration that its user trusts, and from the bytes that were shown. Does not own the format (`recipe`).
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from vivace.agent.memory.instructions import project_root
from vivace.agent.trust.project import WORKFLOWS, read_project
from vivace.agent.trust.store import TrustStore, trusted_project
from vivace.agent.workflows.recipe import Workflow, parse_workflow
from vivace.config import Settings
from vivace.errors import UsageError

SUFFIX = ".toml"


@dataclass(frozen=True)
class Found:
    name: str
    source: str  # project, user or vivace
    text: str
    is_usable: bool = True  # False: of a project that is not trusted

    def parsed(self) -> Workflow:
        return parse_workflow(self.name, self.text)


def list_workflows(settings: Settings, folder: Path) -> list[Found]:
    """Return all of them by name, the nearest of each name. Those that are not trusted are listed too."""
    found = {each.name: each for each in [*_shipped(), *_users(settings), *_projects(settings, folder)]}
    return [found[name] for name in sorted(found)]


def find_workflow(settings: Settings, folder: Path, name: str) -> Found:
    """Return the workflow of this name. Raise `ProjectNotTrusted` if it is one of an untrusted project."""
    known = list_workflows(settings, folder)
    for each in known:
        if each.name == name:
            if not each.is_usable:
                trusted_project(settings.state_dir, project_root(folder))  # raises, and says what to do
            return each
    names = ", ".join(each.name for each in known)
    raise UsageError(f"There is no workflow {name!r}.", f"There are: {names}.")


def _shipped() -> list[Found]:
    folder = files("vivace.agent.workflows") / "shipped"
    return [
        Found(each.name.removesuffix(SUFFIX), "vivace", each.read_text("utf-8"))
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if each.name.endswith(SUFFIX)
    ]


def _users(settings: Settings) -> list[Found]:
    if settings.config_dir is None:
        return []
    paths = sorted(path for path in (settings.config_dir / "workflows").glob(f"*{SUFFIX}") if path.is_file())
    return [Found(path.stem, "user", path.read_text("utf-8", "replace")) for path in paths]


def _projects(settings: Settings, folder: Path) -> list[Found]:
    project = read_project(project_root(folder))
    is_trusted = TrustStore(settings.state_dir).is_trusted(project)
    return [
        Found(Path(name).stem, "project", data.decode("utf-8", "replace"), is_trusted)
        for name, data in project.files.items()
        if name.startswith(f"{WORKFLOWS}/") and name.endswith(SUFFIX)
    ]
