"""A copy of a transcript under an id of its own, which says what it was forked from.

Owns which lines are copied. Does not open a conversation.
"""

import time
from collections.abc import Sequence

from vivace.agent.conversation.transcript.file import Transcript, file_named, new_id
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events.base import SCHEMA
from vivace.agent.events.talk import ConversationStarted
from vivace.config import Settings


def fork_transcript(
    settings: Settings, source: History, records: Sequence[AnyRecord]
) -> tuple[History, RecordLog, Transcript]:
    """Begin a transcript with what was said in another one. Its file is made with the first line of that."""
    began = ConversationStarted(
        schema=SCHEMA,
        id=new_id(),
        folder=source.folder,
        model=source.model,
        at_s=time.time(),
        forked_from=source.id,
    )
    transcript = Transcript(file_named(settings, began.id), began=began)
    history, log = History(), RecordLog()
    for record in (began, *records[1:]):
        history.take(record)
        log.add(record)
        if record is not began:
            transcript.append(record)
    history.close()
    return history, log, transcript
