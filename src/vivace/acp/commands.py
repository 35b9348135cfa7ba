"""Slash commands of a session: those of the terminal that make sense where an editor has the rest.

Owns their names and what each says. The model, the effort and permissions are options of the session
(`options`). Does not own the conversation's rules.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    UnstructuredCommandInput,
)

from vivace.agent.conversation.talk import Talk
from vivace.agent.conversation.undoing import nth_entry
from vivace.client.warm import read_status
from vivace.errors import UsageError

Run = Callable[[Talk, str], Coroutine[Any, Any, str]]  # returns what is said, if the events do not say it


@dataclass(frozen=True)
class Command:
    name: str
    argument: str
    help: str
    run: Run
    needs_server: bool = False


async def _undo(talk: Talk, argument: str) -> str:
    await talk.undo(nth_entry(talk.turns, "applied", argument))
    return ""


async def _redo(talk: Talk, argument: str) -> str:
    await talk.redo(nth_entry(talk.turns, "undone", argument))
    return ""


async def _rewind(talk: Talk, argument: str) -> str:
    if not argument.isdigit():
        turns = [f"- {turn.number}: {turn.text.splitlines()[0][:80]}" for turn in talk.turns if turn.text]
        return "\n".join(["`/rewind TURN` goes back to before a turn, code and talk:", "", *turns])
    await talk.rewind(int(argument))
    return ""


async def _compact(talk: Talk, argument: str) -> str:
    if argument == "undo":
        await talk.undo_compact()
    else:
        await talk.compact()
    return ""


async def _context(talk: Talk, argument: str) -> str:
    del argument
    use = await talk.context()
    rows = [f"| {part.name} | {part.tokens} | {_first_words(part.text)} |" for part in use.parts]
    window = f" of {use.window_tokens}" if use.window_tokens else ""
    return "\n".join(
        [f"{use.used_tokens}{window} tokens", "", "| part | tokens | begins |", "|---|---|---|", *rows]
    )


def _first_words(text: str) -> str:
    return " ".join(text.split())[:60].replace("|", "\\|")


async def _diff(talk: Talk, argument: str) -> str:
    wanted = int(argument) if argument.isdigit() and int(argument) else 1
    applied = [edit for turn in talk.turns for edit in turn.edits if edit.outcome == "applied"]
    if not applied:
        raise UsageError("Nothing was changed in this conversation.", "Ask for a change first.")
    return "\n".join(
        f"**{edit.path}** {edit.unit}\n```diff\n{edit.diff.rstrip()}\n```" for edit in applied[-wanted:]
    )


async def _rename(talk: Talk, argument: str) -> str:
    if not argument:
        raise UsageError("What is it to be called?", "/rename TITLE")
    await talk.rename(argument)
    return f"This conversation is called {talk.title!r} now."


async def _status(talk: Talk, argument: str) -> str:
    del argument
    status = await asyncio.to_thread(read_status, talk.connection.settings)
    rows = [f"- conversation {talk.id}", f"- folder {talk.folder}", f"- model {talk.model}"]
    if status is None:
        return "\n".join([*rows, "- no server runs; the next message starts one"])
    rows.append(f"- server {status.version}, engine {status.engine.state} on {status.engine.device}")
    return "\n".join([*rows, f"- window {status.engine.session_tokens} tokens"])


async def _btw(talk: Talk, argument: str) -> str:
    if not argument:
        raise UsageError("What would you like to know?", "/btw QUESTION")
    await talk.btw(argument)
    return ""


COMMANDS = (
    Command("undo", "[N]", "take the last edit of this conversation back, or the Nth from the end", _undo),
    Command("redo", "[N]", "bring back what was undone last, or the Nth from the end", _redo),
    Command("rewind", "TURN", "back to before a turn, code and talk", _rewind),
    Command("diff", "[N]", "the last changes of this conversation", _diff),
    Command("compact", "[undo]", "let the model summarise what was said", _compact, needs_server=True),
    Command("context", "", "what is in the prompt, in tokens", _context, needs_server=True),
    Command("btw", "QUESTION", "a question that the conversation does not know of", _btw, needs_server=True),
    Command("rename", "TITLE", "give this conversation a name", _rename),
    Command("status", "", "conversation, server, engine", _status),
)


def find(text: str) -> tuple[Command, str] | None:
    """Return the command that a message calls, with its argument; None if it is an ordinary message."""
    name, _, argument = text.strip().partition(" ")
    for command in COMMANDS:
        if name == f"/{command.name}":
            return command, argument.strip()
    return None


def available() -> AvailableCommandsUpdate:
    commands = [
        AvailableCommand(name=each.name, description=each.help, input=_input(each.argument))
        for each in COMMANDS
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)


def _input(argument: str) -> AvailableCommandInput | None:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=argument)) if argument else None
