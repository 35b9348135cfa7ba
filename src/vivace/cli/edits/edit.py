"""`vivace edit`: its arguments.

Owns the options. Does not own what it starts (`editing`) nor the edit (`agent.edits`).
"""

from typing import TYPE_CHECKING

import click

from vivace.agent.effort import DEFAULT_EFFORT, EFFORTS
from vivace.cli.options import model_option, test_option, verbose_option

if TYPE_CHECKING:
    from vivace.agent.effort import Effort
    from vivace.agent.options import Approval


@click.command()
@click.argument("targets", metavar="PATH[:NAME|:L1-L2]...", nargs=-1, required=True)
@click.argument("instruction")
@click.option("--yes", "-y", is_flag=True, help="Write without asking.")
@click.option("--diff", is_flag=True, help="Show the change, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Events, one a line; writes only with --yes.")
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    default=DEFAULT_EFFORT,
    show_default=True,
    help="How hard to try: low is one answer, high compares several.",
)
@test_option
@model_option
@verbose_option
def edit(
    targets: tuple[str, ...],
    instruction: str,
    yes: bool,
    diff: bool,
    as_json: bool,
    effort: "Effort",
    test_command: str | None,
    model: str | None,
    verbose: bool,
) -> int:
    """Change functions, classes or pieces of files, or write a new file."""
    from vivace.cli.edits.editing import choose_presenter, edit_file
    from vivace.config import load_settings

    presenter = choose_presenter(as_json=as_json, verbose=verbose)
    approval: Approval = "never" if diff or (as_json and not yes) else "always" if yes else "ask"
    settings = load_settings().having(model=model, test_command=test_command)
    return edit_file(settings, presenter, approval, effort, targets, instruction)
