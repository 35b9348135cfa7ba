"""`vivace tasks`: background tasks, listed, watched, spoken to, taken over. Its arguments.

Owns the options. Does not own what they start (`background`).
"""

from typing import Any

import click

TASK_ARGUMENT = click.argument("task", metavar="ID")
FORMAT_OPTION = click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Text for people, or JSON, an object a line.",
)


@click.group(invoke_without_command=True)
@FORMAT_OPTION
@click.pass_context
def tasks(context: click.Context, /, output_format: str) -> int | None:
    """List background tasks, or do something with one. Any part of an ID that is unique will do."""
    if context.invoked_subcommand is not None:
        return None
    from vivace.cli.tasks.background import list_all

    return list_all(_settings(), output_format)


@tasks.command()
@TASK_ARGUMENT
@FORMAT_OPTION
def watch(task: str, output_format: str) -> int:
    """Show a task from its beginning, and as it goes on, to its end. Ctrl-C leaves it running."""
    from vivace.cli.tasks.background import watch_task

    return watch_task(_settings(), task, output_format)


@tasks.command()
@TASK_ARGUMENT
@click.argument("text")
def steer(task: str, text: str) -> int:
    """Tell a running task something. It knows between two words that it writes."""
    from vivace.cli.tasks.background import steer

    return steer(_settings(), task, text)


@tasks.command()
@TASK_ARGUMENT
@click.argument("answer", type=click.Choice(["yes", "no"]))
@click.argument("reason", default="")
@click.option(
    "--about", default="", help="Shown with the question. A yes needs it: it allows that question only."
)
def answer(task: str, answer: str, reason: str, about: str) -> int:
    """Answer a task that waits: whether its call may run."""
    from vivace.cli.tasks.background import answer as give

    return give(_settings(), task, is_allowed=answer == "yes", reason=reason, about=about)


@tasks.command()
@TASK_ARGUMENT
def stop(task: str) -> int:
    """End a task. What it did stays in its own copy of the folder."""
    from vivace.cli.tasks.background import stop

    return stop(_settings(), task)


@tasks.command()
@TASK_ARGUMENT
@click.argument("text", default="")
def resume(task: str, text: str) -> int:
    """Let a task go on that was interrupted, stopped, or had reached a limit; or do more, with TEXT."""
    from vivace.cli.tasks.background import resume

    return resume(_settings(), task, text)


@tasks.command()
@TASK_ARGUMENT
@click.option("--stat", is_flag=True, help="Only the names of the files, with lines added and removed.")
def diff(task: str, stat: bool) -> int:
    """Show what a task has changed since it began."""
    from vivace.cli.tasks.background import show_diff

    return show_diff(_settings(), task, is_short=stat)


@tasks.command()
@TASK_ARGUMENT
@click.argument("paths", nargs=-1)
@click.option("--yes", "-y", is_flag=True, help="Take all of it without asking.")
def take(task: str, **given: Any) -> int:
    """Take the changes of a task over into your folder, all or by hunks, merged with your own.

    `vivace undo` takes that back as one step. Where both changed the same lines you are asked.
    """
    from vivace.cli.tasks.background import take_over

    return take_over(_settings(), task, given["paths"], is_sure=given["yes"])


@tasks.command()
@TASK_ARGUMENT
def remove(task: str) -> int:
    """Remove a task that does not run, with its copy of the folder and its log."""
    from vivace.cli.tasks.background import remove

    return remove(_settings(), task)


@tasks.command()
def clean() -> int:
    """Remove what is left of tasks that were never begun or only half removed."""
    from vivace.cli.tasks.background import clean

    return clean(_settings())


def _settings() -> Any:
    from vivace.config import load_settings

    return load_settings()
