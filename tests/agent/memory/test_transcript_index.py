"""Past conversations are found by their words, from the transcripts as they are now."""

from pathlib import Path

import pytest

from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.memory.transcript_index import TranscriptIndex


def talk(folder: Path, id: str, *turns: tuple[str, str]) -> None:
    began = talk_events.ConversationStarted(schema=2, id=id, folder=f"/work/{id}", model="m", at_s=1.0)
    transcript = Transcript(folder / f"{id}.jsonl", began=began)
    for number, (text, answer) in enumerate(turns, 1):
        transcript.append(turn_events.TurnStarted(turn=number, text=text, at_s=float(number)))
        transcript.append(turn_events.AttemptStarted())
        transcript.append(turn_events.AnswerGrew(text=answer))
        transcript.append(turn_events.TurnEnded(turn=number, status="completed"))
    transcript.close()


def ids(folder: Path, words: str) -> list[tuple[str, int]]:
    return [(found.id, found.turn) for found in TranscriptIndex(folder).search(words)]


def test_messages_and_answers_are_found(tmp_path: Path) -> None:
    """All words must be in one turn; the last may be unfinished; what is not there finds nothing."""
    talk(tmp_path, "a", ("how do leases expire?", "After a minute."), ("thanks", "You are welcome."))
    talk(tmp_path, "b", ("what is a lease", "A promise."))
    assert sorted(ids(tmp_path, "lease")) == [("a", 1), ("b", 1)]
    assert ids(tmp_path, "lease minu") == [("a", 1)]
    assert ids(tmp_path, "lease welcome") == []
    assert ids(tmp_path, "") == []
    (found,) = TranscriptIndex(tmp_path).search("promise")
    assert (found.folder, found.text, found.excerpt) == ("/work/b", "what is a lease", "A promise.")


def test_the_index_follows_the_transcripts(tmp_path: Path) -> None:
    """What was said since the last search is found, and what was removed is not."""
    talk(tmp_path, "a", ("first lease", "yes"))
    assert ids(tmp_path, "lease") == [("a", 1)]
    (tmp_path / "a.jsonl").unlink()
    talk(tmp_path, "b", ("second lease", "yes"))
    assert ids(tmp_path, "lease") == [("b", 1)]


@pytest.mark.parametrize("damage", [b"no database" * 1000, b""], ids=["garbage", "empty"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    """The index is only an index: it is rebuilt from the transcripts."""
    talk(tmp_path, "a", ("first lease", "yes"))
    ids(tmp_path, "lease")
    (tmp_path / "index.db").write_bytes(damage)
    assert ids(tmp_path, "lease") == [("a", 1)]


def test_a_torn_transcript_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Half a line at the end, or bytes that are no text, do not hide the rest."""
    talk(tmp_path, "a", ("first lease", "yes"))
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b'{"type":"turn.star\xff')
    assert ids(tmp_path, "lease") == [("a", 1)]


def test_nothing_was_said_yet(tmp_path: Path) -> None:
    """Without a folder of conversations nothing is found, and nothing is made."""
    assert ids(tmp_path / "none", "lease") == []
    assert not (tmp_path / "none").exists()
