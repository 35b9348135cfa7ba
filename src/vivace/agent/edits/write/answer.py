"""The model's answer as it streams in: code inside a fence that we opened, up to the fence that closes it.

Owns the fence. Does not own what to make of the code: `tidy` trims it, `verify` judges it.
"""

import re

_FENCE_LINE = re.compile(r"^[^\S\n]*(`{3,})", re.MULTILINE)
_MAX_FENCE_INDENT = 3  # as in CommonMark: deeper, it is an example inside of a docstring


def fence_for(text: str, least: int = 3) -> str:
    """Return a longer fence than any in `text`, of at least `least` backticks. Prose needs 4."""
    longest = max((len(found) for found in _FENCE_LINE.findall(text)), default=least - 1)
    return "`" * max(least, longest + 1)


class FenceReader:
    """Takes text in pieces of any size and gives complete lines until the closing fence.

    The stream begins inside the fence, just after `opening`, which may stop in the middle of a line. A line
    closes the fence if it begins with at least as many backticks, indented by no more than three spaces;
    the rest of such a line, and all that follows, is dropped. Time is linear in what is fed.
    """

    def __init__(self, fence: str = "```", opening: str = "") -> None:
        self.fence = fence
        self.closed = False
        self.lines: list[str] = []  # complete lines so far, those of `opening` included
        self._pieces: list[str] = []  # of the line in progress
        self.feed(opening)

    @property
    def text(self) -> str:
        """Return all of the new unit so far, the line in progress included."""
        return "".join(f"{line}\n" for line in self.lines) + self.partial

    @property
    def partial(self) -> str:
        """Return the line in progress, unless it may become the closing fence."""
        line = "".join(self._pieces)
        self._pieces = [line]
        return "" if self._may_close(line) else line.removesuffix("\r")

    def feed(self, delta: str) -> list[str]:
        """Read more of the stream. Return the lines that it completed."""
        if self.closed:
            return []
        first, *rest = delta.split("\n")
        self._pieces.append(first)
        completed: list[str] = []
        for piece in rest:
            if not self._complete(completed):
                break
            self._pieces = [piece]
        self.lines += completed
        return completed

    def finish(self) -> list[str]:
        """End the stream: the line in progress is complete. `closed` tells whether a fence came."""
        completed: list[str] = []
        if not self.closed and "".join(self._pieces):
            self._complete(completed)
        self._pieces = []
        self.lines += completed
        return completed

    def _complete(self, completed: list[str]) -> bool:
        """Move the line in progress to `completed`, or close and return False."""
        line = "".join(self._pieces).removesuffix("\r")
        self._pieces = []
        if self._closes(line):
            self.closed = True
            return False
        completed.append(line)
        return True

    def _closes(self, line: str) -> bool:
        code = line.lstrip(" ")
        return len(line) - len(code) <= _MAX_FENCE_INDENT and code.startswith(self.fence)

    def _may_close(self, line: str) -> bool:
        code = line.lstrip(" ")
        shallow = len(line) - len(code) <= _MAX_FENCE_INDENT
        return shallow and code != "" and (code.startswith(self.fence) or self.fence.startswith(code))
