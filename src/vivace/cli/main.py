"""`vivace`: the commands, and how every failure ends.

Owns the list of commands, exit codes and the one place where errors become words. Each command imports what
it needs when it runs, so that `vivace --help` is instant.
"""

import os
import select
import sys
from importlib import import_module
from typing import Any

import click

from vivace import __version__
from vivace.cli.talk import prompt
from vivace.cli.talk.prompt_options import PromptOptions, prompt_options
from vivace.errors import FAILED, INTERRUPTED, USAGE, VivaceError

COMMANDS = {  # name: where it is below vivace.cli, and what it does; the most used first
    "edit": ("edits.edit:edit", "Change code as you describe it, or write a new file."),
    "undo": ("edits.undo:undo", "Take back the last edit in this folder."),
    "redo": ("edits.undo:redo", "Bring back what the last undo took."),
    "ask": ("talk.ask:ask", "Ask about code."),
    "web": ("talk.web:web", "Open the app in your browser."),
    "run": ("tasks.run:run", "Work on a task with tools: read, search, edit, run."),
    "tasks": ("tasks.tasks:tasks", "List background tasks, or manage one."),
    "trust": ("tasks.trust:trust", "Show what a project would run, and trust it."),
    "workflow": ("tasks.workflow:workflow", "List, show, run and resume recipes."),
    "init": ("talk.init:init", "Write a first AGENTS.md for this repository."),
    "memory": ("talk.memory:memory", "Show what the model always reads here."),
    "sessions": ("talk.sessions:sessions", "List past conversations, or manage one."),
    "mcp": ("integrations.mcp:mcp", "Use tools of MCP servers, and offer ours."),
    "acp": ("integrations.acp:acp", "Speak the Agent Client Protocol, for editors."),
    "launch": ("launch.launch:launch", "Run another coding client on this server."),
    "models": ("installation.models:models", "List, download and remove models."),
    "keys": ("server.keys:keys", "Add, list and remove API keys."),
    "extras": ("installation.extras:extras", "Add parts that are not installed by default."),
    "editors": ("integrations.editors:editors", "Install the extension for your editor."),
    "serve": ("server.serve:serve", "Run the server here, until Ctrl-C."),
    "status": ("server.serve:status", "Show whether the server runs, and what it does."),
    "stop": ("server.serve:stop", "Stop the server after its running answers."),
    "doctor": ("installation.doctor:doctor", "Check this machine and this installation."),
    "bench": ("measure.bench:bench", "Measure our speed on this machine."),
    "eval": ("measure.eval:evaluate", "Measure a model's quality on this machine."),
    "completion": ("installation.completion:completion", "Print the completion script of a shell."),
}


class Commands(click.Group):
    """Imports a command when it is used: the list itself needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(f"vivace.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])


@click.group(
    cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="vivace %(version)s")
@prompt_options
@click.pass_context
def app(context: click.Context, /, **given: Any) -> int:
    """Real-time coding on your own machine."""
    return prompt.run(context, PromptOptions(**given))


def main() -> int:
    """Run one command. Return its exit code, however it ended."""
    try:
        code = app(prog_name="vivace", standalone_mode=False)
        sys.stdout.flush()
    except VivaceError as error:
        _complain(error.message, error.hint)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _complain("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        if _has_reader():
            _complain("A connection broke off.", "Try again; `vivace status` names the log.")
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
    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(context.get_help(), err=True)
        return USAGE
    command = context.command_path if context is not None else "vivace"
    _complain(error.format_message(), f"See `{command} --help`.")
    return USAGE


def _complain(message: str, hint: str = "") -> None:
    from vivace.cli.show.screen import complain

    complain(message, hint)
