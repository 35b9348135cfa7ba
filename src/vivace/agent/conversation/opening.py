"""Begin a conversation, take one up again, or find the last one of a folder.

Owns where conversations are kept: one file each under `state_dir/conversations`. Does not own the file's
format (`events.base`) nor what a conversation does (`conversation`).
"""

import time
from collections.abc import Callable
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.transcript.file import (
    OnAppend,
    Transcript,
    file_named,
    file_of,
    new_id,
)
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.reading import beginning_of, files_by_use, read_history
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.events.base import SCHEMA
from vivace.agent.events.talk import ConversationResumed, ConversationStarted
from vivace.agent.presenter import Presenter
from vivace.config import Settings
from vivace.errors import ConversationNotFound


def conversations_dir(settings: Settings) -> Path:
    return settings.state_dir / "conversations"


def open_conversation(
    settings: Settings,
    folder: Path,
    face: Presenter,
    connection: Connection | None = None,
    on_append: OnAppend = lambda _: None,
    files: Files = DISK,
) -> Conversation:
    """Begin a new conversation in this folder. Nothing is sent yet, and no server is started.

    `on_append` is told of every line that is written into the transcript. `files` are those of the face: it
    may have some open, and write accepted changes itself.
    """
    began = ConversationStarted(
        schema=SCHEMA, id=new_id(), folder=str(folder.resolve()), model=settings.model, at_s=time.time()
    )
    transcript = Transcript(file_named(settings, began.id), on_append, began)
    history, log = History(), RecordLog()
    history.take(began)
    log.add(began)
    return Conversation(history, log, transcript, connection or Connection(settings), face, files)


def resume_conversation(
    settings: Settings,
    conversation_id: str,
    face: Presenter,
    connection: Connection | None = None,
    on_append: OnAppend = lambda _: None,
    files: Files = DISK,
) -> Conversation:
    """Take a conversation up again where it ended. Raise `ConversationNotFound` or `ConversationBusy`."""
    transcript = Transcript(file_of(conversations_dir(settings), conversation_id), on_append)
    transcript.heal()
    log = RecordLog()
    history = read_history(transcript.file, log)
    history.folder = history.folder or str(Path.cwd())  # of a damaged file that does not say it any more
    history.model = history.model or settings.model
    resumed = ConversationResumed(id=history.id, at_s=time.time())
    transcript.append(resumed)
    log.add(resumed)
    return Conversation(history, log, transcript, connection or Connection(settings), face, files)


def last_conversation(settings: Settings, folder: Path, say: Callable[[str], None]) -> str:
    """Return the id of the conversation that was used last in this folder.

    `say` is told of one that was used later, and may belong here, too: its file is damaged.
    """
    here = str(folder.resolve())
    for file in files_by_use(conversations_dir(settings)):
        began, is_damaged = beginning_of(file)
        if began is not None and began.folder == here:
            return began.id
        if began is not None and is_damaged:
            say(f"A later conversation is damaged. If you mean that one: vivace --resume {began.id}")
    raise ConversationNotFound(f"There is no conversation in {here} yet.", "Begin one: vivace.")
