"""A bench's report for people: a heading, one aligned table, and which limits were missed.

Owns how the text is laid out. Does not own the rows (each bench's `report`) nor the limits (`limits`).
"""

from collections.abc import Collection, Mapping, Sequence

Row = tuple[str, ...]


def report_text(
    heading: str, rows: Sequence[Row], met: Mapping[str, bool], *, left: Collection[int] = (0, 2, 5)
) -> str:
    """Return the whole report. The columns of `left` begin, the others end at the same place in each row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = "\n".join(_joined(row, widths, left) for row in rows)
    return f"{heading}\n\n{lines}\n\n{verdict(met)}"


def verdict(met: Mapping[str, bool]) -> str:
    """Return the sentence that says which figures missed their limit."""
    missed = [key for key, is_met in met.items() if not is_met]
    return f"Missed: {', '.join(missed)}." if missed else "Every limit is met."


def _joined(row: Row, widths: Sequence[int], left: Collection[int]) -> str:
    cells = (
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()
