"""The file of a conversation: every line is kept, a cut one healed, and read back it is the same state."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.edits.killing import run_killed_at
from vivace.agent.checked_lines import sealed
from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.file import Transcript, encode_record
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.reading import (
    beginning_of,
    files_by_use,
    read_history,
    read_records,
)
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.talk import QueuedMessage
from vivace.errors import ConversationBusy, WriteProblem

BEGAN = talk_events.ConversationStarted(schema=1, id="x", folder="/f", model="m", at_s=1.0)
TURN: list[AnyRecord] = [
    BEGAN,
    turn_events.TurnStarted(turn=1, text="hi"),
    turn_events.AttemptStarted(),
    turn_events.AnswerGrew(text="Hel"),
    turn_events.AnswerGrew(text="lo"),
    turn_events.TurnEnded(turn=1, status="completed", response_id="r", total_tokens=9),
]
texts = st.text(max_size=8)
numbers = st.integers(1, 9)
any_record: st.SearchStrategy[AnyRecord] = st.one_of(
    st.just(turn_events.AttemptStarted()),
    st.builds(turn_events.TurnStarted, turn=numbers, text=texts),
    st.builds(turn_events.AnswerGrew, text=texts),
    st.builds(turn_events.AttemptAbandoned, chars=numbers, why=st.just("steered"), steer=texts),
    st.builds(turn_events.ResponseBegan, response_id=texts),
    st.builds(edit_records.UnitChosen, path=texts, unit=texts, lines=texts, by=texts),
    st.builds(edit_records.EditShown, path=texts, unit=texts, diff=texts),
    st.builds(edit_records.EditWritten, path=texts, diff=texts, entry=numbers),
    st.builds(edit_records.EditDropped, path=texts, reason=st.just("rejected")),
    st.builds(edit_records.Decided, decision=st.just("reject"), reason=texts),
    st.builds(turn_events.TurnEnded, turn=numbers, status=st.just("completed")),
    st.builds(talk_events.Compacted, turn=numbers, summary=texts, before_tokens=numbers),
    st.just(talk_events.CompactionUndone()),
    st.builds(
        talk_events.Rewound,
        turn=numbers,
        is_talk=st.booleans(),
        is_code=st.booleans(),
        entries=st.lists(numbers),
    ),
    st.builds(talk_events.NoteAdded, text=texts),
    st.builds(talk_events.SideStarted, question=texts),
    st.builds(talk_events.SideGrew, text=texts),
    st.builds(
        talk_events.QueueChanged,
        messages=st.lists(st.builds(QueuedMessage, id=numbers, text=texts), max_size=2),
    ),
)


def written(file: Path, lines: list[AnyRecord]) -> Path:
    transcript = Transcript(file)
    for line in lines:
        transcript.append(line)
    transcript.close()
    return file


def folded(lines: list[AnyRecord]) -> History:
    history = History()
    for line in lines:
        history.take(line)
    return history


def joined(history: History) -> History:
    """Return the history with each text as one piece: the end of a piece may stand in the next line."""
    for attempt in (attempt for turn in history.turns for attempt in turn.attempts):
        attempt.pieces = ["".join(attempt.pieces)]
    for side in history.sides:
        side.pieces = ["".join(side.pieces)]
    return history


@given(lines=st.lists(any_record, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_back_gives_the_same_state(tmp_path: Path, lines: list[AnyRecord]) -> None:
    """Whatever was written, in whatever order: the file adds up to what the process had."""
    file = tmp_path / "any.jsonl"
    file.unlink(missing_ok=True)
    live = folded([BEGAN, *lines])
    live.close()
    assert joined(read_history(written(file, [BEGAN, *lines]))) == joined(live)


@given(cut=st.integers(0, 400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cut_file_loses_only_its_last_line(tmp_path: Path, cut: int) -> None:
    """Wherever a crash cut the file, the whole lines before are there and new ones follow them."""
    file = tmp_path / "cut.jsonl"
    file.unlink(missing_ok=True)
    data = written(file, list(TURN)).read_bytes()[:cut]
    file.write_bytes(data)
    whole = data.count(b"\n")
    transcript = Transcript(file)
    transcript.heal()
    transcript.append(TURN[1])
    transcript.close()
    assert list(read_records(file)) == [*TURN[:whole], TURN[1]]


@pytest.mark.forks
def test_a_kill_at_any_line_keeps_what_was_told(tmp_path: Path) -> None:
    """After kill -9 anywhere in an append, every line that was reported written is in the file, and whole."""
    step, is_over = 0, False
    while not is_over:
        step += 1
        file, told = tmp_path / f"{step}.jsonl", tmp_path / f"{step}.told"

        def append(file: Path = file, told: Path = told) -> None:
            fd = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

            def tell(_: AnyRecord) -> None:
                os.write(fd, b"x")

            transcript = Transcript(file, tell)
            for line in TURN[:3]:
                transcript.append(line)

        is_over = run_killed_at(step, append, ("transcript/file.py",))
        count = told.stat().st_size if told.exists() else 0
        kept = list(read_records(file)) if file.exists() else []
        assert kept[:count] == TURN[:count]
        assert len(kept) in (count, count + 1)
    assert step > 10


def test_lines_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    """Unknown types and fields do not stop the reading, and are no damage."""
    file = written(tmp_path / "a.jsonl", list(TURN))
    lines = [line[:-19] + b"}" for line in file.read_bytes().splitlines(keepends=True)]
    odd = [sealed(b'{"type":"later.thing","x":1}'), b'{"type":"other.thing"}\n', b"\n"]
    lines[1] = lines[1].replace(b'"text"', b'"more":[1],"text"')
    sealed_lines = [sealed(line) for line in lines]
    file.write_bytes(b"".join([sealed_lines[0], *odd, *sealed_lines[1:], *odd]))
    assert read_history(file) == folded(list(TURN))


def test_lines_of_before_have_no_checksum(tmp_path: Path) -> None:
    """A transcript of an earlier version is read as it was."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"".join(encode_record(record) + b"\n" for record in TURN))
    assert read_history(file) == folded(list(TURN))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """A conversation that is open cannot be opened again; closed, it can."""
    first = Transcript(tmp_path / "a.jsonl")
    with pytest.raises(ConversationBusy):
        Transcript(tmp_path / "a.jsonl")
    first.close()
    Transcript(tmp_path / "a.jsonl").close()


def test_a_disk_that_takes_nothing_is_said(tmp_path: Path) -> None:
    """A line that cannot be written is an error with words, before it is shown."""
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteProblem):
        Transcript(tmp_path / "file" / "a.jsonl")
    full = Transcript(tmp_path / "a.jsonl")
    full.close()
    full._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(WriteProblem):
        full.append(BEGAN)
    full.close()


def test_conversations_are_listed_by_their_last_use(tmp_path: Path) -> None:
    """The one that was used last comes first; a file that is no transcript is left out."""
    for number, name in enumerate(["old", "new"]):
        file = written(tmp_path / f"{name}.jsonl", [msgspec.structs.replace(BEGAN, id=name)])
        os.utime(file, (number, number))
    (tmp_path / "empty.jsonl").write_text("")
    began = [beginning_of(file)[0] for file in files_by_use(tmp_path)]
    assert [each.id for each in began if each] == ["new", "old"]


def test_secrets_are_not_written(tmp_path: Path) -> None:
    """What is appended and told on has none; other lines are as they were."""
    secret = "sk-" + "abcdefghijklmnopqrstuvwxyz0123456789"
    told: list[AnyRecord] = []
    transcript = Transcript(tmp_path / "x.jsonl", told.append, began=BEGAN)
    transcript.append(turn_events.TurnStarted(turn=1, text=f"use {secret}"))
    transcript.append(turn_events.AnswerGrew(text="Hello"))
    transcript.close()
    assert secret not in (tmp_path / "x.jsonl").read_text()
    assert told[1:] == [
        turn_events.TurnStarted(turn=1, text="use [redacted:api-key]"),
        turn_events.AnswerGrew(text="Hello"),
    ]


def test_a_secret_that_came_in_pieces_is_not_in_the_file(tmp_path: Path) -> None:
    """Neither cut between two deltas nor at the end of the conversation; other text is all there."""
    secret = "sk-" + "abcdefghijklmnopqrstuvwxyz0123456789"
    transcript = Transcript(tmp_path / "x.jsonl", began=BEGAN)
    for piece in ("The key is ", secret[:7], secret[7:20], secret[20:], " and more."):
        transcript.append(turn_events.AnswerGrew(text=piece))
        transcript.append(talk_events.SideGrew(text=piece))
    transcript.append(turn_events.TurnEnded(turn=1, status="completed"))
    transcript.append(turn_events.AnswerGrew(text="A last s"))
    transcript.close()
    lines = list(read_records(tmp_path / "x.jsonl"))
    for kind, said in ((turn_events.AnswerGrew, "A last s"), (talk_events.SideGrew, "")):
        text = "".join(record.text for record in lines if isinstance(record, kind))
        assert text == f"The key is [redacted:api-key] and more.{said}"
