"""What is remembered about a message: the instruction files of its paths, and the notes that fit its words.

Owns how much of it a prompt may have, and the words around it. Finding it touches nothing: where there is no
file and no note, the prompt is what it would be without memory, byte for byte. Does not own where it goes
(`conversation.message.prompt`, `edits.write.rewrite`, `loop.opening`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.edits.write.answer import fence_for
from vivace.agent.events.turn import GivenFile, MemoryUsed
from vivace.agent.memory.instructions import InstructionFile, files_for, fitted, project_root
from vivace.agent.memory.notes import Note, NoteStore
from vivace.errors import VivaceError

SMALL_CHARS = 2000  # about 500 tokens: a model of 1.5B loses its task behind long rules
LARGE_CHARS = 24_000
NOTE_CHARS = 800  # of all notes with one message


@dataclass(frozen=True)
class Recalled:
    files: tuple[InstructionFile, ...] = ()
    notes: tuple[Note, ...] = ()
    problem: str = ""  # why the notes could not be read

    def __bool__(self) -> bool:
        return bool(self.files or self.notes)

    @property
    def has_strangers_text(self) -> bool:
        """Return whether the repository wrote a part of it."""
        return any(not file.is_own for file in self.files)

    def used(self) -> MemoryUsed:
        """Return what a face shows of it."""
        files = tuple(GivenFile(str(file.path), file.shown, file.digest) for file in self.files)
        return MemoryUsed(files, tuple(note.text for note in self.notes), self.problem)

    def untold(self, told: Iterable[MemoryUsed]) -> "Recalled":
        """Return what of it was not told before. A file whose text has changed since is told again."""
        before = list(told)
        files = {(file.path, file.digest) for each in before for file in each.files}
        notes = {note for each in before for note in each.notes}
        return replace(
            self,
            files=tuple(file for file in self.files if (str(file.path), file.digest) not in files),
            notes=tuple(note for note in self.notes if note.text not in notes),
        )

    @property
    def rules(self) -> str:
        """Return the files in the words of a message, "" if there are none."""
        return "\n\n".join(_rules(file) for file in self.files)

    @property
    def reminder(self) -> str:
        """Return the notes in the words of a message, "" if there are none."""
        return reminder(note.text for note in self.notes)

    @property
    def plain_rules(self) -> str:
        """Return the files for a prompt that is only about code: without names and fences."""
        return "\n\n".join(["Rules to keep to:", *(file.text for file in self.files)]) if self.files else ""


NOTHING = Recalled()


@dataclass(frozen=True)
class Memory:
    """Where to look, and how much of it a prompt may have."""

    folder: Path  # where the user works
    state_dir: Path
    user_dir: Path | None  # with the user's own AGENTS.md
    max_chars: int

    @property
    def notes(self) -> NoteStore:
        return NoteStore(self.state_dir, project_root(self.folder))

    def recall(self, message: str, paths: Iterable[Path] = ()) -> Recalled:
        """Return what fits the message and the paths that it is about. Raises nothing."""
        files = tuple(fitted(files_for(paths, self.folder, self.user_dir), self.max_chars))
        try:
            return Recalled(files, tuple(_within(self.notes.about(message), NOTE_CHARS)))
        except VivaceError as error:
            return Recalled(files, problem=error.message)


def joined(recalled: Iterable[Recalled]) -> Recalled:
    """Return all of it as one, each file and note once."""
    several = list(recalled)
    return Recalled(
        tuple(dict.fromkeys(file for each in several for file in each.files)),
        tuple(dict.fromkeys(note for each in several for note in each.notes)),
        next((each.problem for each in several if each.problem), ""),
    )


def _within(notes: list[Note], max_chars: int) -> list[Note]:
    kept = []
    for note in notes:
        if len(note.text) <= max_chars:
            kept.append(note)
            max_chars -= len(note.text)
    return kept


def reminder(notes: Iterable[str]) -> str:
    """Return notes in the words of a message, "" if there are none."""
    lines = _lines(notes)
    return "\n".join(["My notes on this:", *lines]) if lines else ""


def _lines(notes: Iterable[str]) -> list[str]:
    return [f"- {' '.join(note.split())}" for note in notes]


def _rules(file: InstructionFile) -> str:
    fence = fence_for(file.text)
    whose = "My rules" if file.is_own else "The rules of this repository"
    return f"{whose} ({file.shown}):\n{fence}\n{file.text}\n{fence}"
