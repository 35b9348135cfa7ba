"""`vivace run "TASK"`: its arguments.

Owns the options. Does not own what they start (`tasking`).
"""

from typing import Any

import click

from vivace.cli.tasks.task_options import RunOptions, task_options


@click.command()
@click.argument("task")
@task_options
@click.option("--max-turns", type=click.IntRange(min=1), default=50, show_default=True, help="Of the model.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Read anew and written, in all turns.",
)
@click.option("--no-project", is_flag=True, help="Without the MCP servers that this folder names.")
def run(**given: Any) -> int:
    """Work on a task with tools: read, search, edit, run commands.

    Commands run in a sandbox. `vivace undo` takes changes back. A model that is too small for tools works in
    its own way: it answers, or rewrites functions by a plan; name the files with @.
    """
    from vivace.cli.tasks.tasking import run_task, start_in_background
    from vivace.config import load_settings

    settings = load_settings().for_tier("background").having(model=given["model"])
    return (start_in_background if given["background"] else run_task)(settings, RunOptions(**given))
