"""Slash commands about what a task may do.

Owns their words. Does not own the rules (`agent.permissions`) nor tasks (`agent.tasks`).
"""

from typing import TYPE_CHECKING

from vivace.agent.permissions.policy import Policy
from vivace.tui.transcript.blocks import Table

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.session import Session

VERDICTS = {"allow": "yes", "ask": "asks you", "refuse": "no"}


async def show_permissions(app: "VivaceApp", session: "Session", argument: str) -> None:
    """Say what a task may do, what it must ask for, and who says so; or choose another mode."""
    from vivace.agent.loop.opening import has_sandbox
    from vivace.agent.permissions.modes import MODES, mode_named, overview
    from vivace.agent.permissions.policy import PROJECT_FILE, project_policy

    if argument:
        session.use_mode(mode_named(argument))
    mode, project, is_walled = session.mode, project_policy(session.folder), await has_sandbox()
    rows = [
        f"mode      {mode.name}: {mode.help}",
        f"          access {mode.policy.access}, asking {mode.policy.asking}",
        f"project   {_project_in_words(project, PROJECT_FILE)}",
        f"sandbox   {'commands run in it' if is_walled else 'none here: every command asks'}",
        "",
    ]
    policies = [mode.policy, *([project] if project else [])]
    for what, verdict in overview(policies, has_sandbox=is_walled):
        rows.append(f"{what:<30}{VERDICTS[verdict.kind]}")
    rows += ["", "Never written: .git, .vivace, configurations of shells and editors."]
    rows.append("An edit by diff is always yours to take or leave.")
    others = ", ".join(each.name for each in MODES)
    rows.append(f"{app.key_map.shown('next_mode')} or /permissions MODE: {others}")
    app.transcript.add(Table(rows, "Permissions"))


def _project_in_words(project: Policy | None, file: str) -> str:
    if project is None:
        return f"no restrictions ({file} is not there)"
    more = f", protects {', '.join(project.protected)}" if project.protected else ""
    return f"{file}: access {project.access}, asking {project.asking}{more}"
