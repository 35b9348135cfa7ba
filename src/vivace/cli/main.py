"""`vivace`: the commands, and how every failure ends.

Owns the list of commands, exit codes and the one place where errors become words. Each command imports what
it needs when it runs, so that `vivace --help` is instant.
"""

import os
import select
import sys
from typing import Any

import click

from vivace import __version__
from vivace.cli.edits import edit, undo
from vivace.cli.installation import completion, doctor, extras, models
from vivace.cli.integrations import acp, editors, mcp
from vivace.cli.launch import launch
from vivace.cli.measure import bench, eval
from vivace.cli.server import keys, serve
from vivace.cli.talk import ask, init, memory, prompt, sessions, web
from vivace.cli.talk.prompt_options import PromptOptions, prompt_options
from vivace.cli.tasks import run, tasks, trust, workflow
from vivace.errors import FAILED, INTERRUPTED, USAGE, VivaceError


class Commands(click.Group):
    """Listed in the order in which they were added: what is used most comes first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


@click.group(
    cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="vivace %(version)s")
@prompt_options
@click.pass_context
def app(context: click.Context, /, **given: Any) -> int:
    """Real-time coding on your own machine."""
    return prompt.run(context, PromptOptions(**given))


for command in (
    edit.edit,
    undo.undo,
    undo.redo,
    ask.ask,
    web.web,
    run.run,
    tasks.tasks,
    trust.trust,
    workflow.workflow,
    init.init,
    memory.memory,
    sessions.sessions,
    mcp.mcp,
    acp.acp,
    launch.launch,
    models.models,
    keys.keys,
    extras.extras,
    editors.editors,
    serve.serve,
    serve.status,
    serve.stop,
    doctor.doctor,
    bench.bench,
    eval.evaluate,
    completion.completion,
):
    app.add_command(command)


def main() -> int:
    """Run one command. Return its exit code, however it ended."""
    from vivace.cli.show.screen import complain

    try:
        code = app(prog_name="vivace", standalone_mode=False)
        sys.stdout.flush()
    except VivaceError as error:
        complain(error.message, error.hint)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        complain("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        if _has_reader():
            complain("A connection broke off.", "Try again; `vivace status` names the log.")
        else:  # the reader of our output has left
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except click.ClickException as error:
        return _usage(error)
    return code if isinstance(code, int) else 0


def _has_reader() -> bool:
    """Return whether stdout still has a reader: in `vivace … | head` it may have left."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # a pipe without a reader is an error, which is always told
    return not poll.poll(0)


def _usage(error: click.ClickException) -> int:
    """Show why the parser refused the command line, and where to read more."""
    from vivace.cli.show.screen import complain

    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(context.get_help(), err=True)
        return USAGE
    command = context.command_path if context is not None else "vivace"
    complain(error.format_message(), f"See `{command} --help`.")
    return USAGE
