"""Requests about conversations as a list: found, renamed, forked, deleted.

Owns the order of the steps. A conversation that another program holds is asked for it, or the request is
refused. Does not own what the list shows (`conversation_list`).
"""

import asyncio
from pathlib import Path

import msgspec

from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.talk import Talk
from vivace.agent.conversation.transcript.file import Transcript, file_of
from vivace.errors import ConversationBusy
from vivace.web import conversation_list
from vivace.web.face import Face
from vivace.web.messages import requests
from vivace.web.messages.answers import ConversationNamed, ConversationRow, ConversationRows
from vivace.web.operations.table import answers

MAX_ROWS = 1000


@answers(requests.ConversationsList)
async def list_all(face: Face, request: requests.ConversationsList) -> ConversationRows:
    limit = max(0, min(request.limit, MAX_ROWS))
    found = await asyncio.to_thread(conversation_list.rows, face.host.settings, request.folder, limit)
    return _with_state(face, found)


@answers(requests.ConversationsSearch)
async def search(face: Face, request: requests.ConversationsSearch) -> ConversationRows:
    limit = max(0, min(request.limit, MAX_ROWS))
    found = await asyncio.to_thread(conversation_list.search, face.host.settings, request.words, limit)
    return _with_state(face, found)


@answers(requests.ConversationsRename)
async def rename(face: Face, request: requests.ConversationsRename) -> None:
    live = await face.host.open(request.conversation, face.folder, face.name)
    await live.rename(request.title)
    face.host.look_around()


@answers(requests.ConversationsFork)
async def fork(face: Face, request: requests.ConversationsFork) -> ConversationNamed:
    live = await face.host.open(request.conversation, face.folder, face.name)
    other: Talk = await live.talk.fork()
    await other.close()
    face.host.look_around()
    return ConversationNamed(conversation=other.id)


@answers(requests.ConversationsDelete)
async def delete(face: Face, request: requests.ConversationsDelete) -> None:
    live = face.host.find(request.conversation)
    if live is not None:
        if live.is_used_beside(face):
            raise ConversationBusy("The conversation is open somewhere else.", "Close it there first.")
        face.conversations.pop(live.id, None)
        await face.host.let_go(live.id)
    folder = conversations_dir(face.host.settings)
    await asyncio.to_thread(_delete, file_of(folder, request.conversation))


def _delete(file: Path) -> None:
    """Delete the file while nobody else can open it."""
    transcript = Transcript(file)
    try:
        file.unlink()
    finally:
        transcript.close()


def _with_state(face: Face, found: list[ConversationRow]) -> ConversationRows:
    """Return the rows with what is known here: which are open and in which a turn runs."""
    rows = []
    for row in found:
        live = face.host.find(row.conversation)
        is_running = live is not None and live.talk.is_running
        rows.append(msgspec.structs.replace(row, is_open=live is not None, is_running=is_running))
    return ConversationRows(conversations=rows)
