"""Trust of a project's configuration on a terminal: what it would run is shown, and a person says yes or no.

Owns the question and its words. Where nobody can be asked nothing is trusted. Does not own what is trusted
(`agent.trust`).
"""

import sys
import time
from pathlib import Path

import click

from vivace.agent.permissions.shown import shown_in_line
from vivace.agent.trust.describe import described
from vivace.agent.trust.project import ProjectFiles, read_project
from vivace.agent.trust.store import TrustStore, trusted_project
from vivace.cli.show.task import forget_typed, show_whole
from vivace.config import Settings
from vivace.errors import DONE, FAILED, ProjectNotTrusted


def project_for(settings: Settings, folder: Path) -> ProjectFiles:
    """Return the project's configuration, after a yes if it needs one; after a no, an empty one.

    Raise ProjectNotTrusted where nobody can be asked.
    """
    try:
        return trusted_project(settings.state_dir, folder)
    except ProjectNotTrusted as error:
        if not _can_ask():
            raise ProjectNotTrusted(
                error.message, f"{error.hint} --no-project goes on without it."
            ) from error
    project = read_project(folder)
    return project if _says_yes(settings, project) else ProjectFiles(project.root)


def ask_and_tell(settings: Settings, folder: Path, *, yes: bool) -> int:
    """`vivace trust`: show, ask, and say what is so now."""
    project = read_project(folder)
    store = TrustStore(settings.state_dir)
    if not project:
        click.echo(f"{project.root} has no configuration that needs trust.")
        return DONE
    if store.is_trusted(project):
        _show(project)
        click.echo(f"You trust {project.root}, as it is now.")
        return DONE
    if yes:
        _show(project)
        store.trust(project)
    elif not _can_ask():
        _show(project)
        raise ProjectNotTrusted(
            f"{project.root} is not trusted, and nobody is here to ask.",
            "Read the lines above; `vivace trust --yes` trusts it.",
        )
    elif not _says_yes(settings, project):
        return FAILED
    click.echo(f"Trusted: {project.root}. A change asks again; `vivace trust --revoke` takes it back.")
    return DONE


def list_trusted(settings: Settings) -> int:
    for folder, trusted in sorted(TrustStore(settings.state_dir).all().items()):
        click.echo(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(trusted.at_s))}  {folder}")
    return DONE


def revoke_trust(settings: Settings, folder: Path) -> int:
    was = TrustStore(settings.state_dir).revoke(folder)
    click.echo("It is not trusted any more." if was else "It was not trusted.")
    return DONE


def _says_yes(settings: Settings, project: ProjectFiles) -> bool:
    """Show the project, ask, and keep a yes for just what was shown."""
    store = TrustStore(settings.state_dir)
    _show(project)
    if store.was_trusted(project):
        print("It has changed since you trusted it.", file=sys.stderr)
    forget_typed()
    print("Trust it? Only if you know who wrote it. [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print("Not trusted: nothing of it is used.", file=sys.stderr)
        return False
    store.trust(project)
    return True


def _show(project: ProjectFiles) -> None:
    print(f"The configuration of {shown_in_line(str(project.root))}:", file=sys.stderr)
    show_whole("\n".join(described(project)))


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
