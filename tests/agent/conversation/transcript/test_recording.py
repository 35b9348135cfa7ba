"""Events as lines: an edit of several units and files."""

from pathlib import Path

from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.recording import records_of
from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.units import Unit, lines_unit
from vivace.agent.edits.proposal import FileProposal, Proposal, Reject, make_proposal
from vivace.agent.events import turn as turn_events
from vivace.agent.events.edit import (
    EditDecided,
    EditNotApplied,
    EditPlanned,
    EditProposed,
    EditStarted,
    PlannedUnit,
    UnitLeft,
    UnitLocated,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.task import FilesWritten
from vivace.agent.events.turn import TaskStepped


def changed(name: str) -> FileProposal:
    source = source_from_bytes(Path(name), b"one\ntwo\n")
    return make_proposal(source, lines_unit(source, 1, 1), "change", b"ONE\ntwo\n")


def folded(*events: AgentEvent) -> History:
    history = History()
    history.take(turn_events.TurnStarted(turn=1, text="change"))
    for event in events:
        for record in records_of(event):
            history.take(record)
    return history


def test_a_plan_is_one_line() -> None:
    """It has every unit with its place and why it is there; one that stays has a line of its own."""
    unit = Unit("function", "load", "Task.load", 3, 9)
    [planned] = records_of(EditPlanned((PlannedUnit(Path("a.py"), unit, "calls save"),)))
    part = edit_records.PlannedPart(path="a.py", unit="Task.load", lines="3-9", why="calls save")
    assert planned == edit_records.Planned(units=[part])
    [left] = records_of(UnitLeft(Path("a.py"), unit, "It does not parse."))
    assert left == edit_records.UnitStays(path="a.py", unit="Task.load", problem="It does not parse.")


def test_every_file_has_a_result_of_its_own() -> None:
    """Two files that are rejected together are two results with one reason; a steered attempt stays open."""
    one, two = changed("one.txt"), changed("two.txt")
    proposal = Proposal((one, two))
    located = [UnitLocated(file.source, file.unit, was_ranked=False) for file in proposal.files]
    started = EditStarted(one.source, None, "change")
    rejected = Reject("too loud")
    history = folded(
        started,
        located[0],
        started,
        *located,
        EditProposed(proposal, by="model"),
        EditDecided(proposal, rejected),
        EditNotApplied(proposal, "rejected"),
    )
    results = [(edit.path, edit.outcome, edit.reason) for edit in history.turns[0].edits]
    assert results == [
        ("one.txt", "open", ""),
        ("one.txt", "rejected", "too loud"),
        ("two.txt", "rejected", "too loud"),
    ]


def test_a_file_that_is_written_twice_has_two_results() -> None:
    """Each writing of a model with tools has an entry of its own, and each can be taken back."""
    twice = [
        TaskStepped(
            FilesWritten(entry=entry, paths=["a.py"], diff=f"--- a.py\n+++ a.py\n+{entry}\n"), Path("/w")
        )
        for entry in (3, 4)
    ]
    (turn,) = folded(*twice).turns
    assert [(edit.path, edit.entry, edit.outcome) for edit in turn.edits] == [
        ("/w/a.py", 3, "applied"),
        ("/w/a.py", 4, "applied"),
    ]
