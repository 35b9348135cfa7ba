"""`vivace workflow`: its arguments.

Owns the options. Does not own what they start (`workflowing`).
"""

from typing import Any

import click

from vivace.cli.tasks.task_options import WorkflowOptions, output_option, task_options


@click.group()
def workflow() -> None:
    """Recipes of several steps: list, show, run, resume."""


@workflow.command("list")
def list_all() -> None:
    """List the workflows of this project, yours, and those that come with vivace."""
    from vivace.cli.tasks.workflowing import list_here
    from vivace.config import load_settings

    list_here(load_settings())


@workflow.command()
@click.argument("name")
def show(name: str) -> None:
    """Show what the workflow NAME needs and does."""
    from vivace.cli.tasks.workflowing import show_one
    from vivace.config import load_settings

    show_one(load_settings(), name)


@workflow.command()
@click.argument("name")
@click.argument("inputs", metavar="[KEY=VALUE]...", nargs=-1)
@task_options
def run(**given: Any) -> int:
    """Run the workflow NAME. Each change is checked, and one step for `vivace undo`."""
    from vivace.cli.tasks.workflowing import run_one
    from vivace.config import load_settings

    return run_one(load_settings().having(model=given["model"]), WorkflowOptions(**given))


@workflow.command()
@click.argument("id", required=False)
@output_option
def resume(id: str | None, output_format: Any) -> int:
    """Go on with a workflow that was cut off or failed, from its last finished step."""
    from vivace.cli.tasks.workflowing import resume_one
    from vivace.config import load_settings

    return resume_one(load_settings(), id, output_format)
