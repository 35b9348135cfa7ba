"""Where workflows come from, and that a project's run only after trust."""

from pathlib import Path

import pytest

from vivace.agent.trust.project import read_project
from vivace.agent.trust.store import TrustStore
from vivace.agent.workflows.finding import find_workflow, list_workflows
from vivace.config import Settings
from vivace.errors import ProjectNotTrusted, UsageError

TEXT = 'description = "{}"\n[[steps]]\nrun = "true"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".vivace" / "workflows").mkdir(parents=True)
    (folder / ".vivace" / "workflows" / "rename.toml").write_text(TEXT.format("theirs"))
    return folder


def sources(settings: Settings, folder: Path) -> dict[str, str]:
    return {each.name: each.source for each in list_workflows(settings, folder)}


def test_the_nearest_of_a_name_wins(settings: Settings, tmp_path: Path, project: Path) -> None:
    """The project's, then the user's, then ours."""
    mine = tmp_path / "config" / "workflows"
    mine.mkdir(parents=True)
    (mine / "rename.toml").write_text(TEXT.format("mine"))
    (mine / "changelog.toml").write_text(TEXT.format("mine"))
    settings = settings.having(config_dir=tmp_path / "config")
    assert sources(settings, project) == {"add-tests": "vivace", "changelog": "user", "rename": "project"}
    assert sources(settings, tmp_path) == {"add-tests": "vivace", "changelog": "user", "rename": "user"}


def test_a_projects_workflow_needs_trust(settings: Settings, project: Path) -> None:
    """It is listed and not usable before trust, usable after, and not after a change."""
    with pytest.raises(ProjectNotTrusted):
        find_workflow(settings, project, "rename")
    TrustStore(settings.state_dir).trust(read_project(project))
    assert find_workflow(settings, project, "rename").parsed().description == "theirs"
    (project / ".vivace" / "workflows" / "rename.toml").write_text(TEXT.format("evil"))
    with pytest.raises(ProjectNotTrusted):
        find_workflow(settings, project / ".vivace", "rename")


def test_ours_need_no_trust_and_an_unknown_one_is_named(settings: Settings, project: Path) -> None:
    """An untrusted project does not stand in the way of our own workflows."""
    assert find_workflow(settings, project, "changelog").source == "vivace"
    with pytest.raises(UsageError, match="no workflow 'x'"):
        find_workflow(settings, project, "x")
