"""Proposals: taking some hunks, giving another text."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.units import file_unit
from vivace.agent.edits.proposal import FileProposal, make_proposal

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "d"]), max_size=30)
ENDS = st.sampled_from(["\n", "\r\n"])


def propose(old: bytes, new: bytes) -> FileProposal:
    source = source_from_bytes(Path("f.txt"), old)
    return make_proposal(source, file_unit(source), "change it", new)


def text(lines: list[str], end: str = "\n", *, is_closed: bool = True) -> bytes:
    return (end.join(lines) + (end if lines and is_closed else "")).encode()


def lines_of(raw: bytes) -> tuple[str, ...]:
    return source_from_bytes(Path("f.txt"), raw).lines


@given(LINES.filter(bool), LINES, ENDS, st.booleans())
def test_all_hunks_are_the_new_text_and_none_the_old_bytes(
    old: list[str], new: list[str], end: str, is_closed: bool
) -> None:
    """Taking every hunk is the proposal itself; taking none gives the old file, byte for byte."""
    before = text(old, end, is_closed=is_closed)
    proposal = propose(before, text(new, end, is_closed=is_closed))
    everything = frozenset(range(len(proposal.hunks)))
    assert proposal.with_hunks(everything) == proposal
    if proposal.hunks:
        assert proposal.with_hunks(frozenset()).new_bytes == before


@given(LINES.filter(bool), LINES, st.data())
def test_a_chosen_hunk_changes_its_own_lines_only(
    old: list[str], new: list[str], data: st.DataObject
) -> None:
    """With some hunks taken, the text is the old one with the new side of just these hunks."""
    proposal = propose(text(old), text(new))
    chosen = data.draw(st.sets(st.sampled_from(range(len(proposal.hunks))))) if proposal.hunks else set()
    expected: list[str] = []
    at = 1
    for index, hunk in enumerate(proposal.hunks):
        expected += old[at - 1 : hunk.old_first - 1]
        at = hunk.old_first + hunk.old_count
        dropped = "-" if index in chosen else "+"
        expected += [row.text for row in hunk.rows if row.tag != dropped]
    expected += old[at - 1 :]
    assert lines_of(proposal.with_hunks(frozenset(chosen)).new_bytes) == lines_of(text(expected))
