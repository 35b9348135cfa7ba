"""The widget that shows the transcript: the rows that are in view, and no others.

Owns the place in the transcript (at its end, or a row further up) and how often it is drawn. The place is a
block and a row in it, so blocks outside of the view are never measured: 5,000 turns cost what one costs. A
row that was in view before is not made anew, wherever it stands now. Does not own what the blocks look like.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from vivace.tui import theme
from vivace.tui.transcript.blocks import Block
from vivace.tui.transcript.spans import Row, row_text

FRAME_S = 1 / 60
REST = 2  # the next frame waits for this many times the CPU time since the last one: at most half a core
LONGEST_FRAME_S = 0.25
BEHIND = 2  # frames that the terminal has not taken yet, at which it gets no more
WHEEL_ROWS = 3

B = TypeVar("B", bound=Block)
Place = tuple[int, int]  # a block, and a row of it: the first one in view


class Transcript(Widget, can_focus=False):
    DEFAULT_CSS = "Transcript { height: 1fr; }"

    def __init__(self, *, is_utf8: bool = True, on_scroll: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self.frames = 0  # drawn so far
        self._is_utf8 = is_utf8
        self._on_scroll = on_scroll
        self._place: Place | None = None  # None: follow the end
        self._shown: list[Row] = []
        self._strips: list[Strip] = []
        self._strip_of: dict[Row, Strip] = {}  # for the rows in view
        self._made_for: tuple[int, str] = (0, "")  # the width and the theme of these
        self._pending: asyncio.TimerHandle | None = None
        self._next_frame_s = 0.0
        self._cpu_s = 0.0  # of this thread, when the last frame was drawn

    # ---- what is in it --------------------------------------------------------------------------------

    def add(self, block: B) -> B:
        self.blocks.append(block)
        self.touch()
        return block

    def clear(self) -> None:
        self.blocks.clear()
        self._place = None
        self.touch()

    def cut(self, length: int) -> None:
        """Forget all blocks behind the first `length`."""
        del self.blocks[length:]
        self.follow()

    def touch(self) -> None:
        """Draw soon: at once if the last frame is long ago, otherwise in the next one."""
        if self._pending is None and self.is_mounted:
            wait_s = max(0.0, self._next_frame_s - time.monotonic())
            self._pending = asyncio.get_running_loop().call_later(wait_s, self._draw)

    # ---- where it is ----------------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        return self._place is None

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._place = None
        self.touch()
        self._on_scroll()

    def scroll_rows(self, rows: int) -> None:
        """Move the view: up by a negative number. At the end it follows again."""
        height, width = max(1, self.size.height), self.size.width
        end = self._back((len(self.blocks), 0), height, width)
        moved = (self._back if rows < 0 else self._forth)(self._place or end, abs(rows), width)
        self._place = None if moved >= end else moved
        self.touch()
        self._on_scroll()

    @property
    def above(self) -> int:
        """Return how many blocks are above the view."""
        return 0 if self._place is None else self._place[0]

    def _back(self, place: Place, rows: int, width: int) -> Place:
        """Return the place `rows` further up."""
        block, row = place
        while rows > row and block > 0:
            rows -= row
            block -= 1
            row = len(self.blocks[block].rows(width))
        return block, max(0, row - rows)

    def _forth(self, place: Place, rows: int, width: int) -> Place:
        block, row = place
        while block < len(self.blocks):
            left = len(self.blocks[block].rows(width)) - row
            if rows < left:
                return block, row + rows
            block, row, rows = block + 1, 0, rows - left
        return block, row

    def _in_view(self, width: int, height: int) -> list[Row]:
        block, row = self._place or self._back((len(self.blocks), 0), height, width)
        found: list[Row] = []
        while block < len(self.blocks) and len(found) < height:
            rows = self.blocks[block].rows(width)
            found += [rows[index] for index in range(row, min(len(rows), row + height - len(found)))]
            block, row = block + 1, 0
        return found

    # ---- how it is drawn ------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Make the rows in view, and have those drawn that have changed."""
        self._pending = None
        if not self.is_mounted or not self.size.width:
            return
        now_s, cpu_s = time.monotonic(), time.thread_time()
        rest_s = min(LONGEST_FRAME_S, REST * (cpu_s - self._cpu_s))
        self._next_frame_s, self._cpu_s = now_s + max(FRAME_S, rest_s), cpu_s
        if self._is_terminal_behind():
            self.touch()
            return
        self.frames += 1
        self._make_strips()

    def _is_terminal_behind(self) -> bool:
        """Return whether the terminal is slow: what is sent to it now would be seen late, and keys later."""
        writer = getattr(self.app._driver, "_writer_thread", None)
        return writer is not None and writer._queue.qsize() > BEHIND

    def _make_strips(self) -> None:
        width, height = self.size
        before = self._strips
        if self._made_for != (width, self.app.theme):
            self._made_for = (width, self.app.theme)
            self._strip_of = {}
        self._shown = self._in_view(width, height)
        rows: list[Row] = [*self._shown, *[()] * (height - len(self._shown))]
        known = self._strip_of
        self._strips = [known.get(row) or self._strip(row, width) for row in rows]
        self._strip_of = dict(zip(rows, self._strips, strict=True))
        changed = [y for y, strip in enumerate(self._strips) if y >= len(before) or strip is not before[y]]
        if changed and len(changed) < height // 2:
            self.refresh(*(Region(0, y, width, 1) for y in changed))
        elif changed:
            self.refresh()

    def _strip(self, row: Row, width: int) -> Strip:
        name = self.app.theme
        segments = [
            Segment(theme.glyphs(span.text, is_utf8=self._is_utf8), theme.style(name, span.style))
            for span in row
        ]
        return Strip(segments).adjust_cell_length(width, theme.style(name, "text"))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows as they are: without borders and paddings Textual's own way adds only time."""
        strips = self._current_strips()[crop.y : crop.bottom]
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return (
            strips if crop.width == self.size.width else [strip.crop(crop.x, crop.right) for strip in strips]
        )

    def render_line(self, y: int) -> Strip:
        """Return one row that knows its place, for the selection."""
        strips = self._current_strips()
        return strips[y].apply_offsets(0, y) if y < len(strips) else Strip.blank(self.size.width)

    def _current_strips(self) -> list[Strip]:
        if len(self._strips) != self.size.height or self._made_for != (self.size.width, self.app.theme):
            self._make_strips()
        return self._strips

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(row_text(row) for row in self._shown)), "\n"

    def on_resize(self) -> None:
        self._make_strips()
        self.refresh()

    def on_mount(self) -> None:
        self.touch()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(WHEEL_ROWS)
