"""A list above the prompt: completions, or something to choose from with a line to filter it.

Owns what is listed, which entry is marked and what is filtered out. One widget for all lists: models, turns,
conversations, history, themes. Does not own what choosing means: the opener gives a function for that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.widget import Widget

from vivace.tui import theme

MAX_ROWS = 8


@dataclass(frozen=True)
class Entry:
    label: str
    value: object
    hint: str = ""


class Menu(Widget, can_focus=False):
    DEFAULT_CSS = "Menu { height: auto; max-height: 50%; display: none; background: $panel; padding: 0 1; }"

    def __init__(self, *, is_utf8: bool = True) -> None:
        super().__init__()
        self._is_utf8 = is_utf8
        self.is_open = False
        self.is_filtering = False  # typed letters filter; otherwise they go to the prompt
        self.title, self.query_text = "", ""
        self._entries: list[Entry] = []
        self._chosen = 0
        self._take: Callable[[object], None] = lambda _: None

    def open(
        self,
        entries: Sequence[Entry],
        take: Callable[[object], None],
        *,
        title: str = "",
        is_filtering: bool = True,
    ) -> None:
        self.title, self.query_text, self.is_filtering = title, "", is_filtering
        self._entries, self._take, self._chosen = list(entries), take, 0
        self._set_open(is_open=True)

    def close(self) -> None:
        if self.is_open:
            self._set_open(is_open=False)

    def _set_open(self, *, is_open: bool) -> None:
        self.is_open = is_open
        self.display = is_open
        self.refresh(layout=True)

    @property
    def entries(self) -> list[Entry]:
        """Return the entries that the filter leaves: all of its words are in them."""
        words = self.query_text.lower().split()
        return [each for each in self._entries if all(word in each.label.lower() for word in words)]

    def move(self, step: int) -> None:
        count = len(self.entries)
        self._chosen = (self._chosen + step) % count if count else 0
        self.refresh()

    def choose(self) -> None:
        """Take the marked entry and close."""
        entries = self.entries
        self.close()
        if entries:
            self._take(entries[min(self._chosen, len(entries) - 1)].value)

    def type(self, key: str, character: str | None) -> bool:
        """Take a key for the filter; return whether it was one."""
        if key in ("backspace", "ctrl+h"):
            self.query_text = self.query_text[:-1]
        elif character and character.isprintable():
            self.query_text += character
        else:
            return False
        self._chosen = 0
        self.refresh(layout=True)
        return True

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        del container, viewport, width
        return min(MAX_ROWS, max(1, len(self.entries))) + bool(self.title)

    def render(self) -> Text:
        name = self.app.theme
        entries = self.entries
        rows = max(1, (self.size.height or MAX_ROWS) - bool(self.title))
        first = max(0, min(self._chosen - rows // 2, len(entries) - rows))
        lines: list[Text] = []
        if self.title:
            lines.append(Text(f"{self.title} {self.query_text}", theme.foreground(name, "dim")))
        if not entries:
            lines.append(Text("nothing fits", theme.foreground(name, "dim")))
        for index, entry in enumerate(entries[first : first + rows], first):
            is_chosen = index == self._chosen
            label = " ".join(entry.label.split())
            line = Text()  # without a style of its own, which all of it would have
            line.append("› " if is_chosen else "  ", theme.foreground(name, "mark"))
            line.append(label, theme.foreground(name, "asked" if is_chosen else "text"))
            if entry.hint:
                line.append(f"  {entry.hint}", theme.foreground(name, "dim"))
            line.truncate(max(1, self.size.width), overflow="ellipsis")
            lines.append(line)
        text = Text("\n", no_wrap=True).join(lines)
        text.plain = theme.glyphs(text.plain, is_utf8=self._is_utf8)
        return text
