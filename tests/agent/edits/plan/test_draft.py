"""Several units of several files, rewritten in any order: what is outside of them never changes."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import SourceFile, read_source, splice
from vivace.agent.edits.find.units import Unit, lines_unit
from vivace.agent.edits.plan.draft import Draft
from vivace.agent.edits.proposal import make_proposal

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), max_size=6)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A file of any line ends, mixed ones too, with or without a last one."""
    lines = draw(st.lists(LINES, min_size=1, max_size=12))
    ends = draw(st.lists(ENDS, min_size=len(lines), max_size=len(lines)))
    if draw(st.booleans()):
        ends[-1] = ""
    return "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()


@st.composite
def units_of(draw: st.DrawFn, source: SourceFile) -> list[Unit]:
    """Any disjoint units, with at least a line between them, in any order."""
    chosen, line = [], 1
    while line <= len(source.lines):
        if draw(st.booleans()):
            last = draw(st.integers(line, len(source.lines)))
            chosen.append(lines_unit(source, line, last))
            line = last + 1
        line += 1
    return draw(st.permutations(chosen))


def outside(source: SourceFile, units: list[Unit]) -> list[bytes]:
    """The bytes before, between and behind the units."""
    pieces, line = [], 0
    for unit in sorted(units, key=lambda unit: unit.first_line):
        pieces.append(_raw(source, line, unit.first_line - 1))
        line = unit.last_line
    return [*pieces, _raw(source, line, len(source.lines))]


def _raw(source: SourceFile, first: int, last: int) -> bytes:
    pairs = zip(source.lines[first:last], source.ends[first:last], strict=True)
    return "".join(line + end for line, end in pairs).encode()


def has(text: bytes, pieces: list[bytes]) -> bool:
    """Whether the pieces are in the text in their order, from its beginning to its end."""
    if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return False
    at = len(pieces[0])
    for piece in pieces[1:-1]:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return at <= len(text) - len(pieces[-1])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_outside_of_the_units_never_change_and_undo_gives_all_back(data: st.DataObject) -> None:
    """Whatever the units become, in whatever order: the rest of each file stays, one undo restores all."""
    with tempfile.TemporaryDirectory() as folder:
        old = {Path(folder) / name: data.draw(texts()) for name in ("one.txt", "two.txt")}
        draft, chosen = Draft(), dict[Path, list[Unit]]()
        for path, raw in old.items():
            path.write_bytes(raw)
            source = read_source(path)
            chosen[path] = data.draw(units_of(source))
            draft.open(source, [])
        steps = data.draw(st.permutations([(path, unit) for path in old for unit in chosen[path]]))
        for path, unit in steps:
            current, here = draft.source(path), draft.moved(path, unit)
            expected = read_source(path).lines[unit.first_line - 1 : unit.last_line]
            assert current.lines[here.first_line - 1 : here.last_line] == expected
            new = "".join(f"{line}\n" for line in data.draw(st.lists(LINES, min_size=1, max_size=4)))
            raw = splice(current, here.first_line, here.last_line, new)
            draft.take(unit, make_proposal(current, here, "change", raw))
        proposal = draft.proposal("change")
        for file in proposal.files:
            path = file.source.path
            assert file.source.raw == old[path]
            assert has(file.new_bytes, outside(file.source, chosen[path]))
        journal = Journal(Path(folder) / "undo")
        if proposal.changed:
            changes = [Change(file.source, file.new_bytes, file.unit) for file in proposal.changed]
            journal.apply_all(changes, "change")
            assert all(
                path.read_bytes() == file.new_bytes for file in proposal.files for path in [file.source.path]
            )
            journal.undo()
        assert {path: path.read_bytes() for path in old} == old
