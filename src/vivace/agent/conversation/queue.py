"""The messages that wait for the end of a turn, in an order that the user may change.

Owns the list. Every change is told at once as `QueueChanged`. Does not own when a message is taken up.
"""

from collections.abc import Callable, Sequence

from vivace.agent.events.talk import QueueChanged, QueuedMessage


class MessageQueue:
    def __init__(self, messages: Sequence[QueuedMessage], tell: Callable[[QueueChanged], None]) -> None:
        self._messages = list(messages)
        self._tell = tell

    @property
    def messages(self) -> tuple[QueuedMessage, ...]:
        """Return what waits, the next one first."""
        return tuple(self._messages)

    def add(
        self, text: str, mentions: Sequence[str] | None = None, *, is_first: bool = False
    ) -> QueuedMessage:
        """Queue a message behind the others, or in front of them. None: mentions are found in the text."""
        number = max((message.id for message in self._messages), default=0) + 1
        message = QueuedMessage(number, text, None if mentions is None else tuple(mentions))
        self._messages.insert(0 if is_first else len(self._messages), message)
        self._changed()
        return message

    def change(self, message_id: int, text: str, mentions: Sequence[str] | None = None) -> None:
        """Give a message another text. No effect if it was taken up meanwhile."""
        new = QueuedMessage(message_id, text, None if mentions is None else tuple(mentions))
        self._messages = [new if message.id == message_id else message for message in self._messages]
        self._changed()

    def remove(self, message_id: int) -> None:
        """Drop a message. No effect if it was taken up meanwhile."""
        self._messages = [message for message in self._messages if message.id != message_id]
        self._changed()

    def take(self) -> QueuedMessage | None:
        """Return the next message and let it wait no longer."""
        if not self._messages:
            return None
        message = self._messages.pop(0)
        self._changed()
        return message

    def _changed(self) -> None:
        self._tell(QueueChanged(self.messages))
