"""What is remembered, in the prompt of a rewrite: nothing where there is nothing, bounded where there is."""

from pathlib import Path

from tests.agent.edits.write.test_rewrite import parsed
from vivace.agent.edits.find.units import find_unit
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.agent.memory.recall import SMALL_CHARS, Memory


def content(folder: Path, instruction: str = "close the store") -> str:
    source, units = parsed()
    memory = Memory(folder, folder / "state", folder / "config", SMALL_CHARS)
    recalled = memory.recall(instruction, [folder / "store.py"])
    request = rewrite_request(source, units, find_unit(units, "copy"), instruction, recalled=recalled)
    return request.messages[-2]["content"]


def test_without_a_file_the_bytes_are_the_same(tmp_path: Path) -> None:
    """No AGENTS.md and no note: the prompt is byte for byte the one without memory."""
    source, units = parsed()
    unit = find_unit(units, "copy")
    plain = rewrite_request(source, units, unit, "close the store")
    memory = Memory(tmp_path, tmp_path / "state", tmp_path / "config", SMALL_CHARS)
    recalled = memory.recall("close the store", [tmp_path / "store.py"])
    assert (
        rewrite_request(source, units, find_unit(units, "copy"), "close the store", recalled=recalled)
        == plain
    )


def test_rules_come_first_and_notes_before_the_task(tmp_path: Path) -> None:
    """What stays while one types is the beginning; a note that comes and goes is near the end."""
    before = content(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Use `with`.")
    assert content(tmp_path) == f"Rules to keep to:\n\nUse `with`.\n\n{before}"
    Memory(tmp_path, tmp_path / "state", None, SMALL_CHARS).notes.add("A store is closed twice.")
    noted = content(tmp_path)
    assert noted.endswith("My notes on this:\n- A store is closed twice.\n\nTask: close the store")
    assert noted.startswith("Rules to keep to:\n\nUse `with`.\n\nThe rest of store.py")


def test_long_rules_are_cut_for_a_small_model(tmp_path: Path) -> None:
    """However long the file is, the prompt grows by a bounded length."""
    before = len(content(tmp_path))
    (tmp_path / "AGENTS.md").write_text("Use `with`.\n" * 10_000)
    assert len(content(tmp_path)) - before < SMALL_CHARS + 100
