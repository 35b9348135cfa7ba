"""`vivace -p "…"`: one message without a terminal; and what `vivace` alone does.

Owns which of the two it is. Does not own the options (`prompt_options`) nor what they start (`headless`).
"""

import sys
from functools import partial

import click

from vivace.agent.effort import DEFAULT_EFFORT
from vivace.cli.talk.prompt_options import PromptOptions
from vivace.errors import DONE, USAGE, UsageError


def run(context: click.Context, given: PromptOptions) -> int:
    """Run what was asked for, unless it is a command of its own."""
    if context.invoked_subcommand is not None:
        if given != PromptOptions():
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
    from vivace.cli.talk.headless import run_prompt
    from vivace.config import load_settings

    return run_prompt(load_settings().having(model=given.model, test_command=given.test_command), given)


def _open_terminal(given: PromptOptions) -> int:
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

            resume = last_conversation(settings, Path.cwd(), partial(click.echo, err=True))
        effort = given.effort or DEFAULT_EFFORT
        return run(settings, Path.cwd(), effort=effort, resume=resume, typed=typed)
