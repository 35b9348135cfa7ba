"""`vivace workflow`: its arguments.

Owns the options. Does not own what they start (`workflowing`).
"""

from typing import Any

import click

from vivace.cli.commands.edit import model_option

output_option = click.option(
    "--output-format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    help="Text for people, or steps, one a line.",
)


@click.group()
def workflow() -> None:
    """Recipes of several steps: list, show, run, resume."""


@workflow.command("list")
def list_all() -> None:
    """List the workflows of this project, yours, and those that come with vivace."""
    from vivace.cli.workflowing import list_here
    from vivace.config import load_settings

    list_here(load_settings())


@workflow.command()
@click.argument("name")
def show(name: str) -> None:
    """Show what the workflow NAME needs and does."""
    from vivace.cli.workflowing import show_one
    from vivace.config import load_settings

    show_one(load_settings(), name)


@workflow.command()
@click.argument("name")
@click.argument("inputs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--background", is_flag=True, help="Work on a copy; `vivace tasks` shows it and takes it over.")
@click.option(
    "--access",
    type=click.Choice(["read-only", "workspace-write", "full"]),
    default="workspace-write",
    show_default=True,
    help="What it may change by itself.",
)
@click.option(
    "--ask",
    "asking",
    type=click.Choice(["ask", "on-request", "never"]),
    default="on-request",
    show_default=True,
    help="When you are asked: before every change and command, for what the access does not cover, or never.",
)
@output_option
@click.option(
    "--max-minutes", type=click.FloatRange(min=0), default=60.0, show_default=True, help="On the clock."
)
@model_option
def run(**given: Any) -> int:
    """Run the workflow NAME. Each change is checked, and one step for `vivace undo`."""
    from vivace.cli.workflowing import Given, run_one
    from vivace.config import load_settings

    return run_one(load_settings().having(model=given.pop("model")), Given(**given))


@workflow.command()
@click.argument("id", required=False)
@output_option
def resume(id: str | None, output_format: Any) -> int:
    """Go on with a workflow that was cut off or failed, from its last finished step."""
    from vivace.cli.workflowing import resume_one
    from vivace.config import load_settings

    return resume_one(load_settings(), id, output_format)
