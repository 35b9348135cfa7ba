"""Options of a conversation: `vivace` alone and `vivace -p`.

Owns their names, defaults and help. Does not own what they start (`prompt`, `headless`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import click

from vivace.agent.effort import EFFORTS, Effort
from vivace.cli.options import model_option, test_option

OutputFormat = Literal["text", "json", "stream-json"]


@dataclass(frozen=True)
class PromptOptions:
    """The options as they were given."""

    prompt: str | None = None  # "": from stdin
    output_format: OutputFormat = "text"
    resume: str | None = None
    continue_: bool = False
    max_turns: int | None = None
    yes: bool = False
    effort: Effort | None = None
    test_command: str | None = None
    model: str | None = None


def prompt_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a conversation to the program itself."""
    for option in (
        model_option,
        click.option("--yes", "-y", is_flag=True, help="With -p: write changes without asking."),
        click.option("--effort", type=click.Choice(EFFORTS), help="How hard to try at an edit."),
        test_option,
        click.option(
            "--max-turns",
            type=click.IntRange(min=1),
            metavar="N",
            help="With -p: at most N turns of the model; exit code 5 if more are needed.",
        ),
        click.option("--continue", "-c", "continue_", is_flag=True, help="Go on with the last one here."),
        click.option("--resume", "-r", metavar="ID", help="Go on with this conversation."),
        click.option(
            "--output-format",
            type=click.Choice(["text", "json", "stream-json"]),
            default="text",
            help="With -p: the answer, one object, or events, one a line.",
        ),
        click.option(
            "-p",
            "--prompt",
            is_flag=False,
            flag_value="",
            metavar="TEXT",
            help="Say this, show what comes of it, and end. What is piped in is read too.",
        ),
    ):
        command = option(command)
    return command
