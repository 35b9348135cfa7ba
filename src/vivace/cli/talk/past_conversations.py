"""`vivace sessions` when it runs: what is printed, and the question before something is deleted.

Owns the words and the shape of the JSON. Does not own the conversations (`agent.conversation.past`).
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.past import (
    PastConversation,
    delete_past,
    fork_past,
    id_of,
    list_past,
    search_past,
)
from vivace.agent.conversation.sharing.opening import open_in, rename_anywhere
from vivace.agent.conversation.transcript.export import to_markdown
from vivace.agent.conversation.transcript.file import encode_record, file_of
from vivace.agent.conversation.transcript.reading import read_history, read_records
from vivace.agent.tools.bounded import printable
from vivace.config import Settings
from vivace.errors import DONE, FAILED, ConversationBusy, UsageError

RESUME = "`vivace --resume ID` goes on with one."


def list_all(settings: Settings, *, is_here_only: bool, limit: int, as_json: bool) -> None:
    folder = _here() if is_here_only else ""
    found = [past for past in list_past(settings, folder, limit) if past.turns or past.is_damaged]
    if as_json:
        _print_json(found)
        return
    for past in found:
        _say(
            f"{past.id}  {_day(past.used_at_s)}  {_turns(past.turns)}  {past.folder}  {past.shown_title[:80]}"
        )
    _hint(RESUME if found else "There is no conversation yet. Begin one: vivace.")


def search(settings: Settings, words: str, *, is_here_only: bool, as_json: bool) -> None:
    here = _here() if is_here_only else ""
    found = [past for past in search_past(settings, words) if not here or past.folder == here]
    if as_json:
        _print_json(found)
        return
    for past in found:
        head = f"{past.id}  turn {past.turn}  {_day(past.used_at_s)}  {past.folder}  {past.shown_title[:80]}"
        _say(f"{head}\n    {past.excerpt[:200]}")
    _hint(RESUME if found else "No conversation has these words.")


def show(settings: Settings, name: str, *, as_json: bool) -> None:
    file = file_of(conversations_dir(settings), id_of(settings, name))
    if as_json:
        for record in read_records(file):
            click.echo(encode_record(record))
    else:
        _say(to_markdown(read_history(file)).rstrip("\n"))


def rename(settings: Settings, name: str, title: str) -> None:
    conversation_id = id_of(settings, name)
    asyncio.run(rename_anywhere(settings, conversation_id, title))
    title = " ".join(title.split())
    _say(f"{conversation_id} is called {title!r} now." if title else f"{conversation_id} has no name now.")


def fork(settings: Settings, name: str, *, as_json: bool) -> None:
    source = id_of(settings, name)
    forked = fork_past(settings, source)
    _say(json.dumps({"id": forked, "forked_from": source}) if as_json else forked)
    _hint(f"`vivace --resume {forked}` goes on with it.")


def delete(settings: Settings, names: Sequence[str], *, is_sure: bool) -> int:
    """Delete them, after a yes. Of several, none is deleted if one cannot be named."""
    ids = list(dict.fromkeys(id_of(settings, name) for name in names))
    if not is_sure and not _says_yes(settings, ids):
        return FAILED
    for conversation_id in ids:
        try:
            delete_past(settings, conversation_id)
        except ConversationBusy as error:
            raise _open_somewhere(settings, conversation_id) from error
        _say(f"Deleted {conversation_id}.")
    return DONE


def _open_somewhere(settings: Settings, conversation_id: str) -> ConversationBusy:
    faces = asyncio.run(open_in(file_of(conversations_dir(settings), conversation_id)))
    where = f" ({', '.join(faces)})" if faces else ""
    return ConversationBusy(f"The conversation {conversation_id} is open{where}.", "Close it there first.")


def _says_yes(settings: Settings, ids: Sequence[str]) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "Nobody is here to ask.", "`vivace sessions delete ID --yes` deletes without a question."
        )
    known = {past.id: past for past in list_past(settings)}
    for conversation_id in ids:
        past = known.get(conversation_id)
        _say(f"{conversation_id}  {past.shown_title[:80] if past else ''}".rstrip())
    return click.confirm(f"Delete {'it' if len(ids) == 1 else 'them'} for good?", err=True)


def _here() -> str:
    return str(Path.cwd().resolve())


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _print_json(found: Sequence[PastConversation]) -> None:
    for past in found:
        click.echo(json.dumps(asdict(past)))


def _say(text: str) -> None:
    click.echo(printable(text))


def _hint(text: str) -> None:
    click.echo(text, err=True)
