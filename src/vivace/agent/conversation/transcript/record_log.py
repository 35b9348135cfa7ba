"""All lines of a conversation in memory, with deltas that follow each other joined.

Owns the list that a face gets when it joins a conversation. Does not own what the lines mean (`history`) nor
the file (`file`).
"""

from vivace.agent.conversation.transcript.edit_records import EditDelta
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events.talk import SideGrew
from vivace.agent.events.turn import AnswerGrew, ReasoningGrew

Delta = AnswerGrew | ReasoningGrew | EditDelta | SideGrew


class RecordLog:
    def __init__(self) -> None:
        self._records: list[AnyRecord] = []
        self._kind: type[Delta] | None = None  # of the delta that grows
        self._pieces: list[str] = []

    def add(self, record: AnyRecord) -> None:
        """Add one line. A delta grows the last line if that is one of the same kind."""
        if not isinstance(record, Delta):
            self._join()
            self._records.append(record)
            return
        if type(record) is not self._kind:
            self._join()
            self._kind = type(record)
        self._pieces.append(record.text)

    def __len__(self) -> int:
        return len(self._records) + (self._kind is not None)

    @property
    def records(self) -> list[AnyRecord]:
        """Return all lines so far."""
        grown = [self._kind(text="".join(self._pieces))] if self._kind else []
        return [*self._records, *grown]

    def _join(self) -> None:
        if self._kind:
            self._records.append(self._kind(text="".join(self._pieces)))
        self._kind, self._pieces = None, []
