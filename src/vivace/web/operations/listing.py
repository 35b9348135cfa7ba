"""Requests about conversations as a list: found, renamed, forked, deleted.

Owns the order of the steps. A conversation that another program holds is asked for it, or the request is
refused. Does not own what is known of each (`agent.conversation.past`).
"""

import asyncio
from collections.abc import Sequence

from vivace.agent.conversation.past import PastConversation, delete_past, list_past, search_past
from vivace.agent.conversation.talk import Talk
from vivace.errors import ConversationBusy
from vivace.web.face import Face
from vivace.web.messages import conversation_requests
from vivace.web.messages.answers import ConversationNamed, ConversationRow, ConversationRows
from vivace.web.operations.table import answers

MAX_ROWS = 1000


@answers(conversation_requests.ConversationsList)
async def list_all(face: Face, request: conversation_requests.ConversationsList) -> ConversationRows:
    limit = max(0, min(request.limit, MAX_ROWS))
    found = await asyncio.to_thread(list_past, face.host.settings, request.folder, limit)
    return _with_state(face, found)


@answers(conversation_requests.ConversationsSearch)
async def search(face: Face, request: conversation_requests.ConversationsSearch) -> ConversationRows:
    limit = max(0, min(request.limit, MAX_ROWS))
    found = await asyncio.to_thread(search_past, face.host.settings, request.words, limit)
    return _with_state(face, found)


@answers(conversation_requests.ConversationsRename)
async def rename(face: Face, request: conversation_requests.ConversationsRename) -> None:
    live = await face.host.open(request.conversation, face.folder, face.name)
    await live.rename(request.title)
    face.host.look_around()


@answers(conversation_requests.ConversationsFork)
async def fork(face: Face, request: conversation_requests.ConversationsFork) -> ConversationNamed:
    live = await face.host.open(request.conversation, face.folder, face.name)
    other: Talk = await live.talk.fork()
    await other.close()
    face.host.look_around()
    return ConversationNamed(conversation=other.id)


@answers(conversation_requests.ConversationsDelete)
async def delete(face: Face, request: conversation_requests.ConversationsDelete) -> None:
    live = face.host.find(request.conversation)
    if live is not None:
        if live.is_used_beside(face):
            raise ConversationBusy("The conversation is open somewhere else.", "Close it there first.")
        face.conversations.pop(live.id, None)
        await face.host.let_go(live.id)
    await asyncio.to_thread(delete_past, face.host.settings, request.conversation)


def _with_state(face: Face, found: Sequence[PastConversation]) -> ConversationRows:
    """Return the rows with what is known here: which are open and in which a turn runs."""
    return ConversationRows(conversations=[_row(face, past) for past in found])


def _row(face: Face, past: PastConversation) -> ConversationRow:
    live = face.host.find(past.id)
    return ConversationRow(
        conversation=past.id,
        title=past.shown_title,
        folder=past.folder,
        model=past.model,
        started_at_s=past.started_at_s,
        used_at_s=past.used_at_s,
        turns=past.turns,
        is_open=live is not None,
        is_running=live is not None and live.talk.is_running,
        excerpt=past.excerpt,
    )
