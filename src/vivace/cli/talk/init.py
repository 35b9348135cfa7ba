"""`vivace init`: its arguments.

Owns the options. Does not own the text (`agent.memory.first_draft`).
"""

from typing import TYPE_CHECKING

import click

from vivace.cli.options import model_option

if TYPE_CHECKING:
    from vivace.agent.options import Approval


@click.command()
@click.option("--describe", is_flag=True, help="Let the model add a paragraph on what the project is for.")
@click.option("--yes", "-y", is_flag=True, help="Write without asking.")
@click.option("--diff", is_flag=True, help="Show the text, write nothing.")
@model_option
def init(describe: bool, yes: bool, diff: bool, model: str | None) -> int:
    """Write a first AGENTS.md for this repository, from the repository itself. Never overwrites one."""
    from vivace.cli.talk.initializing import write_first_draft
    from vivace.config import load_settings

    approval: Approval = "never" if diff else "always" if yes else "ask"
    settings = load_settings().having(model=model)
    return write_first_draft(settings, approval, is_described=describe)
