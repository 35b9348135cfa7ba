"""`vivace -p` when it runs: one message, from the arguments and stdin to an exit code.

Owns what is read from stdin, which conversation it is, and how it ends. While it runs, other faces can join
the conversation: what they steer or queue is done and printed here, and when this ends, they go on with it.
Does not own the conversation (`agent.conversation`) nor what is printed (`show.headless`).
"""

import asyncio
import os
import stat
import sys
from pathlib import Path

import click

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.message.intent import intent_by_words
from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.conversation.opening import last_conversation, open_conversation, resume_conversation
from vivace.agent.conversation.transcript.history import Turn
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.events.base import SCHEMA, Failed
from vivace.agent.events.turn import FileEdit, Result
from vivace.agent.permissions.policy import Policy
from vivace.agent.trust.settings import with_project_settings
from vivace.cli.installation.fetching import with_model_here
from vivace.cli.show.headless import HeadlessPresenter
from vivace.cli.talk.prompt_options import PromptOptions
from vivace.config import Settings
from vivace.errors import DONE, ApprovalNeeded, LimitReached, UsageError, VivaceError

NAME = "command"  # as other faces call this one


def run_prompt(settings: Settings, given: PromptOptions) -> int:
    """Do what the message says; return the exit code."""
    face = HeadlessPresenter(given.output_format)
    try:
        text, piped = _message(given.prompt or "")
        if not (given.continue_ or given.resume):  # or else it is checked when the folder is known
            check_mentions(text, Path.cwd())
        return asyncio.run(_run(settings, given, face, text, piped))
    except VivaceError as error:
        face.finish(_failed(error))
        return error.exit_code


async def _run(
    settings: Settings, given: PromptOptions, face: HeadlessPresenter, text: str, piped: str
) -> int:
    async with _opened(settings, given, face) as talk:
        talk.approval = "always" if given.yes else "never"
        talk.policy = Policy("workspace-write" if given.yes else "read-only", "never")
        talk.effort = given.effort or talk.effort
        await talk.share(NAME)
        kind = intent_by_words(text) if piped else None  # the words are the user's, not those piped in
        turn = await talk.send(f"{text}{piped}", kind=kind)
        error = face.error or _shortfall(turn, face.why_refused, may_write=given.yes)
        face.finish(_result(talk, turn, error))
        return error.exit_code if error else DONE


def _opened(settings: Settings, given: PromptOptions, face: HeadlessPresenter) -> Conversation:
    here = Path.cwd()
    known = last_conversation(settings, here, _warn) if given.continue_ else given.resume
    ready = with_model_here(
        with_project_settings(settings, here)
    )  # only now: what is wrong with the request needs no model
    connection = Connection(ready, face.progress, max_turns=given.max_turns)
    if known is None:
        return open_conversation(ready, here, face, connection, face.take)
    talk = resume_conversation(ready, known, face, connection, face.take)
    if talk.history.is_damaged:
        _warn(f"The file of the conversation {known} is damaged: vivace sessions show {known}")
    if given.model:
        talk.model = ready.model
    return talk


def _warn(text: str) -> None:
    click.echo(text, err=True)


def _message(text: str) -> tuple[str, str]:
    """Return the message, and what was piped in as a block behind it."""
    piped = _piped()
    if text.strip():
        fence = fence_for(piped)
        return text, f"\n\n{fence}\n{piped.rstrip()}\n{fence}" if piped.strip() else ""
    if not piped.strip():
        raise UsageError("The message is empty.", 'Say something: vivace -p "…", or pipe it in.')
    return piped, ""


def _piped() -> str:
    """Return what a pipe or a file gives on stdin; "" for a terminal or another device."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _shortfall(turn: Turn, why_refused: str, *, may_write: bool) -> Failed | None:
    """Return what kept the turn from being all that was asked for, if it did not fail."""
    if turn.status == "cut":
        return Failed.of(
            LimitReached("The answer was cut at the limit of its length.", "`--continue` goes on from it.")
        )
    if turn.refused_calls:
        said = f"{turn.refused_calls} calls of tools were not allowed. {why_refused}".strip()
        return Failed.of(ApprovalNeeded(said, "" if may_write else "--yes lets it write files here."))
    if turn.edits and turn.edits[-1].outcome == "shown_only":
        problem = "The change was not written: nobody is here to say yes to it."
        return Failed.of(ApprovalNeeded(problem, "--yes writes changes."))
    return None


def _result(talk: Conversation, turn: Turn, error: Failed | None) -> Result:
    return Result(
        schema=SCHEMA,
        id=talk.id,
        status=turn.status or "failed",
        exit_code=error.exit_code if error else DONE,
        text=turn.answer if turn.kind != "edit" else "",
        edits=[
            FileEdit(path=edit.path, unit=edit.unit, diff=edit.diff, outcome=edit.outcome)
            for edit in turn.edits
        ],
        error=error,
        total_tokens=turn.total_tokens,
    )


def _failed(error: VivaceError) -> Result:
    """Return the result of a message that did not become a turn."""
    return Result(
        schema=SCHEMA, id="", status="failed", exit_code=error.exit_code, text="", error=Failed.of(error)
    )
