"""An edit on the screen: the unit while it is written anew, then its hunks and what the user makes of them.

Owns how a diff looks and which hunk is in question. Rows of a diff that still grows are read when it is
drawn, not when a token comes. Does not own the alignment (`agent.edits.write.live_diff`) nor the decision's
effect.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vivace.agent.permissions.shown import visible
from vivace.tui.transcript.blocks import Cached
from vivace.tui.transcript.spans import TAB, Row, Span, clean, wrap_code
from vivace.tui.transcript.syntax import colour, lexer_name

if TYPE_CHECKING:
    from vivace.agent.edits.proposal import Proposal
    from vivace.agent.edits.write.live_diff import LiveDiff
    from vivace.agent.edits.write.live_diff import Row as DiffRow

_SIDE = {"+": "added", "-": "removed", " ": "", "@": "hunk"}


class EditBlock(Cached):
    def __init__(self, title: str, suffix: str) -> None:
        super().__init__()
        self._title, self._lexer = title, lexer_name(suffix)
        self._live: LiveDiff | None = None
        self._partial = ""
        self._first_line = 1
        self._plan: list[str] = []  # a line for each unit, if there are several
        self.proposal: Proposal | None = None
        self.ending = ""  # in words, when it is decided
        self.chosen: dict[int, bool] = {}  # hunk -> taken
        self.asked: int | None = None  # the hunk in question
        self.is_struck = False

    def plan(self, lines: list[str]) -> None:
        self._plan = lines
        self.version += 1

    def locate(self, title: str, first_line: int) -> None:
        self._title, self._first_line = title, first_line
        self.version += 1

    def grow(self, diff: "LiveDiff", partial: str) -> None:
        """Remember where the diff stands. Cheap: nothing is drawn here."""
        self._live, self._partial = diff, partial
        self.version += 1

    def propose(self, proposal: "Proposal") -> None:
        self.proposal, self._live = proposal, None
        self.chosen, self.asked = {}, None
        self.version += 1

    def ask(self, hunk: int | None) -> None:
        self.asked = hunk
        self.version += 1

    def choose(self, hunk: int, *, is_taken: bool) -> None:
        self.chosen[hunk] = is_taken
        self.version += 1

    def end(self, words: str) -> None:
        self.ending, self.asked = words, None
        self.version += 1

    def strike(self) -> None:
        self.is_struck = True
        self.version += 1

    def make_rows(self, width: int) -> list[Row]:
        rows: list[Row] = [(Span(f"  {clean(line)}"[: max(1, width)], "dim"),) for line in self._plan]
        rows.append((Span("  "), Span(visible(self._title, keep=""), "bold")))
        if self._live is not None:
            rows += self._diff(self._live.rows(self._partial), width, self._first_line, self._first_line)
        elif self.proposal is not None:
            rows += self._proposed(self.proposal, width)
            left_out = [f"Not in it: {each}" for each in self.proposal.missing]
            wrong = [*self.proposal.problems, *self.proposal.faults, *left_out]
            rows += [(Span(f"  {clean(problem)}"[:width], "error"),) for problem in wrong]
        if self.ending:
            rows.append((Span(f"  {clean(self.ending)}"[: max(1, width)], "dim"),))
        return rows

    def _proposed(self, proposal: "Proposal", width: int) -> list[Row]:
        """Return the hunks of all files, numbered through; of several files, with their names."""
        rows: list[Row] = []
        index = 0
        for file in proposal.files:
            self._lexer = lexer_name(file.source.path.suffix)
            if len(proposal.files) > 1 and file.hunks:
                rows.append((Span("  "), Span(visible(file.source.path.name, keep=""), "bold")))
            for hunk in file.hunks:
                rows.append(self._hunk_head(index, hunk.rows_with_header[0].text))
                rows += self._diff(hunk.rows, width, hunk.old_first, hunk.new_first)
                index += 1
        return rows

    def _hunk_head(self, index: int, text: str) -> Row:
        mark = {True: "✓", False: "✗", None: " "}[self.chosen.get(index)]
        style = "asked" if self.asked == index else "hunk"
        return (Span(f"{'›' if self.asked == index else ' '}{mark}", "mark"), Span(text, style))

    def _diff(self, diff: Sequence["DiffRow"], width: int, old_line: int, new_line: int) -> list[Row]:
        """Return the rows, each with its line number in the new file, or the old one where it is removed."""
        rows: list[Row] = []
        digits = len(str(max(old_line, new_line) + len(diff)))
        old_state = new_state = ""
        for tag, text in diff:
            spans, after = colour(
                visible(text.replace("\t", TAB), keep=""), old_state if tag == "-" else new_state, self._lexer
            )
            old_state = after if tag != "+" else old_state
            new_state = after if tag != "-" else new_state
            number = old_line if tag == "-" else new_line
            old_line, new_line = old_line + (tag != "+"), new_line + (tag != "-")
            rows += self._row(tag, f"{number:>{digits}}", spans, width)
        return rows

    def _row(self, tag: str, number: str, spans: Sequence[Span], width: int) -> list[Row]:
        side = _SIDE[tag]
        if self.is_struck:
            spans = [Span(span.text, "struck") for span in spans]
        elif side:
            spans = [Span(span.text, f"{span.style}.{side}") for span in spans]
        sign = Span(f" {tag} ", f"sign.{side}" if side else "dim")
        lead: Row = (Span(f"  {number}", "dim"), sign)
        wrapped = wrap_code(spans, width, lead, (Span(" " * (len(number) + 2)), sign))
        if not side:
            return wrapped
        return [
            (*row, Span(" " * max(0, width - sum(len(s.text) for s in row)), f"code.{side}"))
            for row in wrapped
        ]
