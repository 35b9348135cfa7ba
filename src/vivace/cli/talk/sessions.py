"""`vivace sessions`: past conversations, listed, found, shown, renamed, forked, deleted. Its arguments.

Owns the options. Does not own what they do (`past_conversations`).
"""

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from vivace.config import Settings

MAX_LISTED = 100
MAX_COMPLETED = 50  # ids that a shell is told


def _complete_ids(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the ids that begin so, the one that was used last first."""
    del context, parameter
    from vivace.agent.conversation.past import list_past
    from vivace.errors import VivaceError

    try:
        found = [past for past in list_past(_settings()) if past.id.startswith(incomplete)]
    except VivaceError:  # a shell that completes shows no errors
        return []
    return [CompletionItem(past.id, help=past.title) for past in found[:MAX_COMPLETED]]


SESSION = click.argument("session", metavar="ID", shell_complete=_complete_ids)
HERE = click.option("--here", is_flag=True, help="Only conversations of this folder.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
LIMIT = click.option(
    "-n", "--limit", type=click.IntRange(1), default=MAX_LISTED, help=f"How many. Default: {MAX_LISTED}."
)


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List past conversations, or do something with one. Any part of an ID that is unique will do."""
    if context.invoked_subcommand is None:
        from vivace.cli.talk.past_conversations import list_all

        list_all(_settings(), is_here_only=False, limit=MAX_LISTED, as_json=False)


@sessions.command("list")
@HERE
@LIMIT
@AS_JSON
def list_sessions(here: bool, limit: int, as_json: bool) -> None:
    """List the conversations, the one that was used last first."""
    from vivace.cli.talk.past_conversations import list_all

    list_all(_settings(), is_here_only=here, limit=limit, as_json=as_json)


@sessions.command("search")
@click.argument("words", nargs=-1, required=True)
@HERE
@AS_JSON
def search_sessions(words: tuple[str, ...], here: bool, as_json: bool) -> None:
    """Find past conversations with a turn that has all WORDS."""
    from vivace.cli.talk.past_conversations import search

    search(_settings(), " ".join(words), is_here_only=here, as_json=as_json)


@sessions.command("show")
@SESSION
@AS_JSON
def show_session(session: str, as_json: bool) -> None:
    """Print a conversation as Markdown, or with --json the lines of its transcript."""
    from vivace.cli.talk.past_conversations import show

    show(_settings(), session, as_json=as_json)


@sessions.command("rename")
@SESSION
@click.argument("title", nargs=-1, required=True)
def rename_session(session: str, title: tuple[str, ...]) -> None:
    """Give a conversation a name, also one that is open; "" takes its name away."""
    from vivace.cli.talk.past_conversations import rename

    rename(_settings(), session, " ".join(title))


@sessions.command("fork")
@SESSION
@AS_JSON
def fork_session(session: str, as_json: bool) -> None:
    """Copy a conversation, also one that is open, to one that goes on alone. Print its ID."""
    from vivace.cli.talk.past_conversations import fork

    fork(_settings(), session, as_json=as_json)


@sessions.command("delete")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True, shell_complete=_complete_ids)
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_sessions(sessions: tuple[str, ...], yes: bool) -> int:
    """Delete conversations for good. The files that they changed stay as they are."""
    from vivace.cli.talk.past_conversations import delete

    return delete(_settings(), sessions, is_sure=yes)


def _settings() -> "Settings":
    from vivace.config import load_settings

    return load_settings()
