"""The line at the bottom: what goes on, model, effort, how warm the prompt is, context, speed, queue.

Owns its words, and what is left out first where the screen is narrow. Does not know where the values come
from.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text
from textual.widget import Widget

from vivace.tui import theme

METER_CELLS = 8


@dataclass
class Status:
    activity: str = ""  # what the turn does; "" when it is the user's
    model: str = ""
    effort: str = ""
    mode: str = ""  # of permissions
    warm_percent: int | None = None  # of the prompt that is being typed
    context_tokens: int = 0
    window_tokens: int = 0
    tokens_per_second: float = 0.0
    queued: int = 0
    tasks: int = 0  # in the background, that are not over
    others: tuple[str, ...] = ()  # faces that have the same conversation open
    hint: str = ""  # what a key would do now
    progress: str = ""  # in words, while something waits for its model to be loaded or to read

    @property
    def doing(self) -> str:
        """Return what goes on; "" when it is the user's turn."""
        return self.progress or self.activity

    def parts(self) -> list[tuple[int, str]]:
        """Return the parts from left to right, each with its rank: what has the highest goes first."""
        parts = [(0, self.doing or "ready"), (4, self.model), (6, self.effort), (2, self.mode)]
        if self.queued:
            parts.insert(1, (1, f"{self.queued} queued"))
        if self.tasks:
            parts.insert(1, (1, f"{self.tasks} task{'s' if self.tasks > 1 else ''}"))
        if self.others:
            parts.append((1, f"also open in {', '.join(self.others)}"))
        if self.warm_percent is not None:
            parts.append((5, f"prompt warm {self.warm_percent}%"))
        if self.window_tokens:
            parts.append((3, _meter(self.context_tokens, self.window_tokens)))
        if self.tokens_per_second:
            parts.append((7, f"{self.tokens_per_second:.0f} tok/s"))
        parts.append((0, self.hint) if self.hint else (8, "? keys"))
        return [part for part in parts if part[1]]

    def line(self, width: int) -> str:
        """Return as many parts as fit, the important ones first."""
        parts = self.parts()
        while len(parts) > 1 and len(_joined(parts)) > width:
            parts.remove(max(parts))
        return _joined(parts)[: max(0, width)]


class StatusLine(Widget, can_focus=False):
    DEFAULT_CSS = "StatusLine { height: 1; background: $panel; padding: 0 1; }"

    def __init__(self, status: Status, *, is_utf8: bool = True) -> None:
        super().__init__()
        self.status = status
        self._is_utf8 = is_utf8

    def render(self) -> Text:
        line = theme.glyphs(self.status.line(self.size.width), is_utf8=self._is_utf8)
        text = Text(line, theme.foreground(self.app.theme, "dim"), no_wrap=True, overflow="crop")
        if self.status.doing:
            text.stylize(theme.foreground(self.app.theme, "mark"), 0, len(self.status.doing))
        return text


def short_model(model: str) -> str:
    """Return a model's name; of a file without its folder."""
    return Path(model).stem if os.sep in model and model.endswith((".gguf", ".json")) else model


def _joined(parts: list[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in parts)


def _meter(used: int, window: int) -> str:
    share = min(1.0, used / window)
    cells = round(share * METER_CELLS)
    return f"context {'█' * cells}{'░' * (METER_CELLS - cells)} {_short(used)}/{_short(window)}"


def _short(tokens: int) -> str:
    return (
        str(tokens) if tokens < 1000 else f"{tokens / 1000:.1f}k" if tokens < 10_000 else f"{tokens // 1000}k"
    )
