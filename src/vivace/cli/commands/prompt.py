"""`vivace -p "…"`: one message without a terminal; and what `vivace` alone does.

Owns the options. Does not own what they start (`headless`).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import click

from vivace.agent.effort import DEFAULT_EFFORT, EFFORTS, Effort
from vivace.cli.commands.edit import model_option, test_option
from vivace.errors import DONE, USAGE, UsageError

OutputFormat = Literal["text", "json", "stream-json"]


@dataclass(frozen=True)
class Given:
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


def options(command: Callable[..., Any]) -> Callable[..., Any]:
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


def run(context: click.Context, given: Given) -> int:
    """Run what was asked for, unless it is a command of its own."""
    if context.invoked_subcommand is not None:
        if given != Given():
            raise UsageError(
                f"The options before {context.invoked_subcommand!r} belong to a conversation.",
                f"Put them behind it, or leave them out: vivace {context.invoked_subcommand} --help.",
            )
        return DONE
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if given.prompt is None and not is_terminal:
        click.echo(context.get_help(), err=True)
        return USAGE
    if given.resume and given.continue_:
        raise UsageError("--resume and --continue name two conversations.", "Give one of them.")
    if given.prompt is None:
        return _open_terminal(given)
    from vivace.cli.headless import run_prompt
    from vivace.config import load_settings

    return run_prompt(load_settings().having(model=given.model, test_command=given.test_command), given)


def _open_terminal(given: Given) -> int:
    """Open the terminal face. It imports the agent itself, after its first paint."""
    from vivace.tui.quick_start import quick_imports
    from vivace.tui.terminal_mode import keys_as_typed

    with keys_as_typed() as typed:
        with quick_imports():
            from pathlib import Path

            from vivace.config import load_settings
            from vivace.tui.app import run

        settings = load_settings().having(model=given.model, test_command=given.test_command)
        resume = given.resume
        if given.continue_:
            from vivace.agent.conversation.opening import last_conversation

            resume = last_conversation(settings, Path.cwd())
        effort = given.effort or DEFAULT_EFFORT
        return run(settings, Path.cwd(), effort=effort, resume=resume, typed=typed)
