"""The field in which the user types, one line high until there is more to show.

Owns its text, cursor and height, folded pastes, and what is offered for the word at the cursor. Every key is
shown to `on_press` first. Does not know what keys mean (`controls`).
"""

from collections.abc import Callable

from textual import events
from textual.widgets import TextArea

from vivace.tui.prompt.pasting import Pastes

MAX_ROWS = 12

Press = Callable[[str, str | None], bool]  # key, character -> whether that was all


class PromptEditor(TextArea):
    DEFAULT_CSS = """
    PromptEditor { height: 1; border: none; padding: 0; background: $background; scrollbar-size: 0 0; }
    PromptEditor:focus { border: none; background-tint: $background 0%; }
    PromptEditor .text-area--cursor-line { background: $background; }
    """

    def __init__(self, on_press: Press, on_change: Callable[[], None]) -> None:
        super().__init__(soft_wrap=True, show_line_numbers=False, compact=True, highlight_cursor_line=False)
        self._on_press, self._on_change = on_press, on_change
        self.pastes = Pastes()

    @property
    def whole_text(self) -> str:
        """Return the text with everything that was pasted."""
        return self.pastes.unfold(self.text)

    @property
    def before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def set_text(self, text: str) -> None:
        """Put another text there, the cursor at its end. Undo brings the old one back."""
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def replace_before_cursor(self, length: int, text: str) -> None:
        row, column = self.cursor_location
        self.replace(text, (row, max(0, column - length)), (row, column))

    def fit(self) -> None:
        """Be as high as the text, up to a third of the screen."""
        rows = min(self.wrapped_document.height, MAX_ROWS, max(1, self.app.size.height // 3))
        if self.styles.height is None or self.styles.height.value != rows:
            self.styles.height = max(1, rows)

    async def _on_key(self, event: events.Key) -> None:
        if self._on_press(event.key, event.character):
            event.stop()
            event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert(self.pastes.fold(event.text))

    def on_text_area_changed(self) -> None:
        self.fit()
        self._on_change()
