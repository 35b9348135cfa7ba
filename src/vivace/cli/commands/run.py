"""`vivace run "TASK"`: its arguments.

Owns the options. Does not own what they start (`tasking`).
"""

from dataclasses import dataclass
from typing import Any, Literal

import click

from vivace.cli.commands.edit import model_option

OutputFormat = Literal["text", "stream-json"]


@dataclass(frozen=True)
class Given:
    """The options as they were given."""

    task: str
    access: Literal["read-only", "workspace-write", "full"]
    asking: Literal["ask", "on-request", "never"]
    output_format: OutputFormat
    max_turns: int
    max_tokens: int
    max_minutes: float
    background: bool
    no_project: bool
    model: str | None


@click.command()
@click.argument("task")
@click.option(
    "--access",
    type=click.Choice(["read-only", "workspace-write", "full"]),
    default="workspace-write",
    show_default=True,
    help="What it may change by itself: nothing, files in this folder, or anything.",
)
@click.option(
    "--ask",
    "asking",
    type=click.Choice(["ask", "on-request", "never"]),
    default="on-request",
    show_default=True,
    help="When you are asked: before every change and command, for what the access does not cover, or never.",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    help="Text for people, or steps, one a line.",
)
@click.option("--max-turns", type=click.IntRange(min=1), default=50, show_default=True, help="Of the model.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Read anew and written, in all turns.",
)
@click.option(
    "--max-minutes", type=click.FloatRange(min=0), default=60.0, show_default=True, help="On the clock."
)
@click.option(
    "--background",
    "-b",
    is_flag=True,
    help="Work on a copy of this folder, beside everything else; see `vivace tasks`.",
)
@click.option("--no-project", is_flag=True, help="Without the MCP servers that this folder names.")
@model_option
def run(**given: Any) -> int:
    """Work on a task with tools: read, search, edit, run commands.

    Commands run in a sandbox. `vivace undo` takes changes back. A model that is too small for tools works in
    its own way: it answers, or rewrites functions by a plan; name the files with @.
    """
    from vivace.cli.tasking import run_task, start_in_background
    from vivace.config import load_settings

    settings = load_settings().for_tier("background").having(model=given["model"])
    return (start_in_background if given["background"] else run_task)(settings, Given(**given))
