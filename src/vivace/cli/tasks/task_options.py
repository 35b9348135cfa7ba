"""Options that every task has, whether a model's or a workflow's: written once.

Owns their names, defaults and help. Does not own what they start (`tasking`, `workflowing`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, TypeVar

import click

from vivace.cli.options import model_option

OutputFormat = Literal["text", "stream-json"]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options as they were given."""

    access: Literal["read-only", "workspace-write", "full"]
    asking: Literal["ask", "on-request", "never"]
    output_format: OutputFormat
    max_minutes: float
    background: bool
    model: str | None


@dataclass(frozen=True, kw_only=True)
class RunOptions(TaskOptions):
    """Those of `vivace run`."""

    task: str
    max_turns: int
    max_tokens: int
    no_project: bool


@dataclass(frozen=True, kw_only=True)
class WorkflowOptions(TaskOptions):
    """Those of `vivace workflow run`."""

    name: str
    inputs: tuple[str, ...]


output_option = click.option(
    "--output-format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    help="Text for people, or steps, one a line.",
)
_OPTIONS = (
    click.option(
        "--access",
        type=click.Choice(["read-only", "workspace-write", "full"]),
        default="workspace-write",
        show_default=True,
        help="What it may change by itself: nothing, files in this folder, or anything.",
    ),
    click.option(
        "--ask",
        "asking",
        type=click.Choice(["ask", "on-request", "never"]),
        default="on-request",
        show_default=True,
        help="When you are asked: before every change and command, for what the access does not cover, "
        "or never.",
    ),
    output_option,
    click.option(
        "--max-minutes", type=click.FloatRange(min=0), default=60.0, show_default=True, help="On the clock."
    ),
    click.option(
        "--background",
        "-b",
        is_flag=True,
        help="Work on a copy of this folder, beside everything else; see `vivace tasks`.",
    ),
    model_option,
)


def task_options(command: F) -> F:
    """Give a command the fields of `TaskOptions`."""
    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)
