"""The parts of a conversation, each as rows for a given width: messages, notes, output of commands, times.

Owns what each part looks like, in names of styles. A block says by `version` that it has changed; rows are
made when the block is in view. Does not own answers (`answer`) and diffs (`diff`), nor what is in view
(`view`).
"""

import time
from collections.abc import Sequence
from typing import Protocol

from vivace.agent.permissions.shown import in_rows
from vivace.tui.transcript.spans import Row, Span, clean, wrap_code, wrap_words

MARK, MARK_CELLS = "mark", 2
MANY_ROWS = 15  # of a question: its beginning may have left the screen
OUTPUT_ROWS = 12  # of a command's output, unless details are shown


class Block(Protocol):
    version: int

    def rows(self, width: int) -> Sequence[Row]: ...


class Cached:
    """A block that keeps its rows until its version or the width changes."""

    def __init__(self) -> None:
        self.version = 0
        self._rows: list[Row] = []
        self._made_for: tuple[int, int] | None = None

    def rows(self, width: int) -> Sequence[Row]:
        if self._made_for != (self.version, width):
            self._rows = self.make_rows(width)
            self._made_for = (self.version, width)
        return self._rows

    def make_rows(self, width: int) -> list[Row]:
        raise NotImplementedError


class Said(Cached):
    """What the user said. A mark tells a message from a steer, a shell command and a note."""

    def __init__(self, text: str, mark: str = "›", style: str = "user") -> None:
        super().__init__()
        self.text, self._mark, self._style = text, mark, style

    def make_rows(self, width: int) -> list[Row]:
        rows: list[Row] = [()]
        for number, line in enumerate(clean(self.text).splitlines() or [""]):
            first = Span(f"{self._mark} " if number == 0 else "  ", MARK)
            rows += wrap_words([Span(line, self._style)], width, (first,), (Span("  "),))
        return rows


class Note(Cached):
    """One thing that the program says: what happened, and perhaps what to do."""

    def __init__(self, text: str, hint: str = "", style: str = "dim") -> None:
        super().__init__()
        self.text, self.hint, self._style = text, hint, style

    def change(self, text: str) -> None:
        self.text = text
        self.version += 1

    def make_rows(self, width: int) -> list[Row]:
        rows: list[Row] = []
        for text, style in ((self.text, self._style), (self.hint, "dim")):
            for line in clean(text).splitlines():
                rows += wrap_words([Span(line, style)], width, (Span("  "),), (Span("  "),))
        return rows


class Whole(Cached):
    """What the user approves or trusts, all of it. Each row has a mark that no text can take away."""

    def __init__(self, title: str, written: str, reason: str = "") -> None:
        super().__init__()
        self._title, self._written, self._reason = title, written, reason

    def make_rows(self, width: int) -> list[Row]:
        found: list[Row] = []
        for text, style in ((self._title, "bold"), (self._reason, "dim")):
            if text:
                found += wrap_code([Span(clean(text), style)], width, (Span("  "),), (Span("  "),))
        if self._written:
            whole = in_rows(self._written, width - 2)
            found += [(Span("  "), Span(row, "code")) for row in whole]
            if len(whole) > MANY_ROWS:
                found.append((Span(f"  ({len(whole):,} rows: scroll up for the first)"[:width], "dim"),))
        return found


class Table(Cached):
    """Lines that are already aligned: help, context, status. They are cut at the width, not wrapped."""

    def __init__(self, lines: Sequence[str], title: str = "") -> None:
        super().__init__()
        self.lines, self._title = list(lines), title

    def change(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        self.version += 1

    def make_rows(self, width: int) -> list[Row]:
        head: list[Row] = [(), (Span(f"  {self._title}", "bold"),)] if self._title else []
        return [*head, *((Span(f"  {clean(line)}"[: max(1, width)], "dim"),) for line in self.lines)]


class ToolCall(Cached):
    """A call of a tool: what it does, and behind it, when it has ended, what came of it."""

    def __init__(self, tool: str, title: str) -> None:
        super().__init__()
        self._tool, self._title = tool, title
        self._ending, self._is_fine = "…", True

    def end(self, status: str, summary: str) -> None:
        self._is_fine = status == "done"
        self._ending = summary if self._is_fine else f"{status}: {summary}"
        self.version += 1

    def make_rows(self, width: int) -> list[Row]:
        first_line = " ".join(clean(self._title).split())
        ending = " ".join(clean(self._ending).split())
        shown = [Span(f"{self._tool} "), Span(first_line), Span("  "), self._end_span(ending)]
        return wrap_words(shown, width, (Span("· ", MARK),), (Span("  "),))

    def _end_span(self, ending: str) -> Span:
        return Span(ending, "dim" if self._is_fine else "error")


class Output(Cached):
    """A shell command of the user's and what it printed, the end of it unless details are shown."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self.command, self.text, self.code = command, "", None
        self.is_open = False

    code: int | None

    def grow(self, text: str) -> None:
        self.text += text
        self.version += 1

    def end(self, code: int) -> None:
        self.code = code
        self.version += 1

    def toggle(self) -> None:
        self.is_open = not self.is_open
        self.version += 1

    def make_rows(self, width: int) -> list[Row]:
        rows: list[Row] = [(), (Span("! ", MARK), Span(clean(self.command), "bold"))]
        lines = clean(self.text).splitlines()
        hidden = 0 if self.is_open else max(0, len(lines) - OUTPUT_ROWS)
        if hidden:
            rows.append((Span(f"  … {hidden} lines more", "dim"),))
        for line in lines[hidden:]:
            rows += wrap_code([Span(line, "code")], width, (Span("  "),), (Span("  "),))
        if self.code:
            rows.append((Span(f"  exit code {self.code}", "error"),))
        return rows


class Thinking(Cached):
    """What the model thinks before its answer: one dim line with its time, and all of it when unfolded."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []
        self._began_s = self._last_s = time.monotonic()
        self._is_timed, self._is_over = True, False
        self.is_open = False

    @classmethod
    def past(cls, text: str) -> "Thinking":
        """Return the thinking of an earlier turn, whose time is not known."""
        block = cls()
        block._pieces, block._is_timed, block._is_over = [text], False, True
        return block

    def grow(self, delta: str) -> None:
        self._pieces.append(delta)
        self._last_s = time.monotonic()
        self.version += 1

    def end(self) -> None:
        self._is_over = True
        self.version += 1

    def toggle(self) -> None:
        self.is_open = not self.is_open
        self.version += 1

    @property
    def title(self) -> str:
        took = f" {self._last_s - self._began_s:.0f} s" if self._is_timed else ""
        return f"thought{took}" if self._is_over else f"thinking{took} …"

    def make_rows(self, width: int) -> list[Row]:
        rows: list[Row] = [(Span(f"  {self.title}"[: max(1, width)], "dim"),)]
        if self.is_open:
            for line in clean("".join(self._pieces)).strip().splitlines():
                rows += wrap_words(
                    [Span(line, "dim")], width, (Span("  │ ", "rule"),), (Span("  │ ", "rule"),)
                )
        return rows


class Times(Cached):
    """Where the time of a turn went: one line, and all stages when details are shown."""

    def __init__(self, line: str, table: Sequence[str]) -> None:
        super().__init__()
        self._line, self._table = line, list(table)
        self.is_open = False

    def toggle(self) -> None:
        self.is_open = not self.is_open
        self.version += 1

    def make_rows(self, width: int) -> list[Row]:
        rows: list[Row] = [
            (),
            *wrap_words([Span(clean(self._line), "dim")], width, (Span("  "),), (Span("  "),)),
        ]
        if self.is_open:
            rows += [(Span(f"  {line}"[: max(1, width)], "dim"),) for line in self._table]
        return rows
