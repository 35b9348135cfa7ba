"""Transcripts and logs of tasks with flipped bits, holes and strange lines: nothing is hidden in silence."""

from collections import Counter
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from vivace.agent.checked_lines import last_newline, seal_of, sealed
from vivace.agent.conversation.past import list_past
from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.conversation.transcript.reading import LOST, read_history, read_records
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.base import DAMAGED, Failed
from vivace.config import Settings

ID = "20260101-120000-abcdef"
BEGAN = talk_events.ConversationStarted(schema=2, id=ID, folder="/home/f", model="m", at_s=1.0)
TURNS: list[AnyRecord] = [
    record
    for number in (1, 2, 3)
    for record in (
        turn_events.TurnStarted(turn=number, text=f"message {number}"),
        turn_events.AttemptStarted(),
        turn_events.AnswerGrew(text="Hello, "),
        turn_events.AnswerGrew(text="world. "),
        edit_records.EditWritten(path="/home/f/a.py", diff="-a\n+b\n", entry=number),
        turn_events.TurnEnded(turn=number, status="completed", response_id=f"r{number}", total_tokens=9),
    )
]
any_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def in_folder(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path, state_dir=tmp_path, port=0, threads=1)


def file_in(tmp_path: Path) -> Path:
    """Return a conversation's file with three turns."""
    file = tmp_path / "conversations" / f"{ID}.jsonl"
    file.unlink(missing_ok=True)
    transcript = Transcript(file, began=BEGAN)
    for record in TURNS:
        transcript.append(record)
    transcript.close()
    return file


def flipped(data: bytes, bits: set[int]) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


@given(st.sets(st.integers(0, 2**16), min_size=1, max_size=30))
@any_file
def test_flipped_bits_are_told_and_hide_nothing(tmp_path: Path, bits: set[int]) -> None:
    """However many bits flip, the list has the conversation with a mark, and opened it says so."""
    file = file_in(tmp_path)
    whole = file.read_bytes()
    data = flipped(whole, bits)
    assume(data != whole)
    file.write_bytes(data)
    history = read_history(file)
    assert history.id == ID
    assert history.is_damaged
    assert "damaged" in "".join(turn.error for turn in history.turns), "every face shows a turn's error"
    found = list_past(in_folder(tmp_path), "/home/f")
    assert [past.id for past in found] == [ID]
    assert found[0].is_damaged
    assert "(damaged)" in found[0].shown_title
    undamaged = Counter(whole.splitlines()) & Counter(data.splitlines())
    said = [record for record in read_records(file) if not isinstance(record, Failed)]
    assert len(said) >= undamaged.total(), "what can be read is shown"
    assert file.read_bytes() == data


@given(st.sets(st.integers(0, 2**16), min_size=1, max_size=30))
@any_file
def test_taking_up_a_damaged_file_removes_no_line(tmp_path: Path, bits: set[int]) -> None:
    """What stands there stays; the next line begins on a line of its own."""
    file = file_in(tmp_path)
    file.write_bytes(data := flipped(file.read_bytes(), bits))
    transcript = Transcript(file)
    transcript.heal()
    transcript.append(talk_events.NoteAdded(text="the next one"))
    transcript.close()
    kept = file.read_bytes()
    assert talk_events.NoteAdded(text="the next one") in list(read_records(file))
    is_end_legible = last_newline(data)[0] >= len(data) - 1
    assert kept.startswith(data[:-1]) or not is_end_legible


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"\n", b"{", b'{"type":"turn.started"']), max_size=12)
)
@any_file
def test_any_bytes_can_be_read(tmp_path: Path, pieces: list[bytes]) -> None:
    """A file with anything in it is read to its end."""
    file = tmp_path / "conversations" / f"{ID}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(pieces))
    history = read_history(file)
    assert not history.is_damaged or history.turns
    assert len(list_past(in_folder(tmp_path))) <= 1


@given(st.integers(0, 2**16), st.integers(1, 200))
@any_file
def test_a_hole_of_zeros_is_told(tmp_path: Path, at: int, size: int) -> None:
    """A sector that reads as zeros is damage, too."""
    file = file_in(tmp_path)
    data = file.read_bytes()
    at %= len(data) - size
    file.write_bytes(data[:at] + bytes(size) + data[at + size :])
    codes = [record.code for record in read_records(file) if isinstance(record, Failed)]
    assert DAMAGED in codes


def test_nothing_legible_is_told_as_well(tmp_path: Path) -> None:
    """A conversation of which nothing is left is one turn that says so."""
    file = file_in(tmp_path)
    file.write_bytes(b"\0" * 500 + b"\n")
    turn = read_history(file).turns[0]
    assert (turn.text, turn.status) == (LOST, "stopped")
    assert "damaged" in turn.error


def test_a_line_that_was_cut_where_it_looks_like_a_seal_has_none() -> None:
    """Found by the fuzzer: an empty string behind a short name, cut in the digits of the checksum."""
    line = sealed(msgspec.json.encode({"0": 0, "0\x80": ""}))
    assert [seal_of(line[:end]) for end in range(1, len(line) - 1)] == ["none"] * (len(line) - 2)


@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers(0, 9), min_size=1), st.data())
def test_one_flipped_bit_breaks_the_checksum(fields: dict[str, object], data: st.DataObject) -> None:
    """A line with its checksum is whole; with one bit changed it is not, and without its end it has none."""
    line = sealed(msgspec.json.encode(fields))
    assert msgspec.json.decode(line) == {**fields, "crc": line[-11:-3].decode()} or "crc" in fields
    assert seal_of(line) == "whole"
    bit = data.draw(st.integers(0, 8 * (len(line) - 1) - 1))
    assert seal_of(flipped(line, {bit})) != "whole"
    assert seal_of(line[: data.draw(st.integers(0, len(line) - 2))]) != "broken" or b'"crc"' in line[:-20]
