"""Notes and past conversations at the prompt."""

from pathlib import Path

import pytest

from tests.tui.conftest import Open
from tests.tui.screen import Screen
from vivace.tui.commands.memory import notes_of


async def ask(screen: Screen, text: str) -> None:
    await screen.say(text)
    await screen.sees("Hello there.")
    await screen.idle()


async def test_a_note_is_kept_and_used_later(open_screen: Open) -> None:
    """`#text` goes with the next message, and in another conversation with one that shares its words."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("#the pool has 8 workers")
        await screen.sees("# the pool has 8 workers", "Remembered for this project as note")
        await ask(screen, "what now?")
        await screen.say("/clear")
        await screen.sees("A new conversation.")
        await screen.ready()
        await ask(screen, "how large is the pool?")
        await screen.sees("using 1 note", "# the pool has 8 workers")


async def test_memory_lists_searches_edits_and_removes(
    open_screen: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each form of /memory does what it says, and a wrong one names the right ones."""
    (folder / "AGENTS.md").write_text("Be kind.")
    monkeypatch.setenv("EDITOR", "sed -i s/large/huge/")
    monkeypatch.delenv("VISUAL", raising=False)
    async with open_screen(size=(80, 50)) as screen:
        await screen.ready()
        await screen.say("/memory add --user the pool is large")
        await screen.sees("Remembered:", "user     the pool is large")
        assert screen.app.session is not None
        (note,) = notes_of(screen.app.session).search("pool large")
        await screen.say("/memory")
        await screen.sees("Memory", "AGENTS.md  8 characters", f"{note.id}  user     the pool is large")
        await screen.say(f"/memory edit {note.id}")
        await screen.sees("Changed:", "user     the pool is huge")
        await screen.say("/memory search huge")
        await screen.sees("Notes with huge")
        await screen.say(f"/memory remove {note.id}")
        await screen.sees("Forgot:")
        await screen.say(f"/memory edit {note.id}")
        await screen.sees(f"There is no note {note.id} here.")
        await screen.say("/memory burn")
        await screen.sees("There is no /memory burn.")


async def test_a_past_conversation_is_found_by_words(open_screen: Open) -> None:
    """/resume WORDS offers the conversation that has them; what nobody said is said so."""
    async with open_screen() as screen:
        await screen.ready()
        await ask(screen, "how do leases expire?")
        before = screen.app.session.talk.id
        await screen.say("/clear")
        await screen.sees("A new conversation.")
        await screen.ready()
        await screen.say("/resume nobody said this")
        await screen.sees("No conversation has the words")
        await screen.say("/resume leases expire")
        await screen.sees("Resume:", "how do leases expire?")
        await screen.press("enter")
        await screen.sees("Hello there.")
        assert screen.app.session.talk.id == before


async def test_init_is_a_proposal_that_can_be_undone(open_screen: Open, folder: Path) -> None:
    """/init shows the file, y writes it, /undo takes it back; a second one is refused while it is there."""
    (folder / "cart.py").write_text("def total():\n    return 0\n")
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/init")
        await screen.sees("+ - top level: 1 file; `total`", "y take it")
        await screen.decides()
        await screen.press("y")
        await screen.idle()
        assert "top level" in read(folder / "AGENTS.md")
        await screen.say("/init")
        await screen.sees("is there already.")
        await screen.say("/undo")
        await screen.until(lambda: not exists(folder / "AGENTS.md"))


def read(path: Path) -> str:
    return path.read_text()


def exists(path: Path) -> bool:
    return path.exists()
