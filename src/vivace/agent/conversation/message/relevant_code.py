"""Code that a question is about although the user mentioned none: it goes before the question.

Owns the evidence: names in the question that the repository has, files that were edited or spoken of a few
turns ago, and words that point back at them. No model is asked. Owns how much is read, too: at most
`BUDGET_TOKENS` a question, and nothing that the model has read already. Does not own files that the user
mentions (`mentions`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.conversation.message.intent import is_small_talk
from vivace.agent.conversation.message.repository import (
    Listed,
    files_named_in,
    list_file,
    list_files,
    looks_like_code,
)
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.find.evidence import words
from vivace.agent.edits.find.languages import fence_tag_for, language_for
from vivace.agent.edits.find.locate import outline
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.places.ranking import nats_for_units
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.edits.write.context import surroundings
from vivace.agent.events.turn import CodePiece
from vivace.errors import UsageError

BUDGET_TOKENS = 900  # of all code that one question brings
CHARS_PER_TOKEN = 3  # of code; fewer than there are, so that the budget holds
MAX_PIECES = 3
MAX_HOLDERS = 2  # a name that more units have says nothing
RECENT_TURNS = 6
LEAST_CHARS = 200  # with less room nothing is begun
MAX_QUESTION_CHARS = 20_000  # in which names are looked for
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*")
_POINTING = re.compile(
    r"\b(?:this|that|the|your|its) (?:\w+ )?(?:function|method|class|file|module|code|change|edit|script)\b",
    re.I,
)
_BACK = re.compile(r"\b(?:it|its|this|that|these|those|again|there)\b", re.I)


@dataclass(frozen=True)
class Place:
    """Where the conversation was before: a file, and perhaps a unit of it."""

    path: Path  # relative to the folder
    unit: str
    is_last_edit: bool  # the turn directly before changed it


def find_code(history: History, text: str, files: Files = DISK) -> tuple[CodePiece, ...]:
    """Return what the question is about, as far as its words and the last turns say, within the budget."""
    if is_small_talk(text):
        return ()
    folder = Path(history.folder)
    recent = list(_recent_places(history, folder))
    found = _by_name(folder, text[:MAX_QUESTION_CHARS], recent) or _by_recent(folder, text, recent)
    room = BUDGET_TOKENS * CHARS_PER_TOKEN
    pieces: list[CodePiece] = []
    for piece in _with_best_units(found, folder, text, files):
        if len(pieces) == MAX_PIECES or room < LEAST_CHARS:
            break
        if _is_inside(piece, pieces) or _is_known(piece, history, folder):
            continue
        most = room
        shown, is_whole = _shown(folder, piece.path, piece.unit, most, files)
        if not is_whole:  # the rest is for the unit that is asked about
            most = room // 2
            shown, _ = _shown(folder, piece.path, piece.unit, most, files)
        pieces.append(replace(piece, max_chars=most, is_shortened=not is_whole))
        room -= len(shown)
    return tuple(pieces)


def read_piece(piece: CodePiece, folder: Path, files: Files = DISK) -> str:
    """Return the piece as the model reads it. Raise what is wrong with its file."""
    shown, _ = _shown(folder, piece.path, piece.unit, piece.max_chars, files)
    fence = fence_for(shown)
    return f"{piece.label}\n{fence}{fence_tag_for(Path(piece.path))}\n{shown}\n{fence}"


def _shown(folder: Path, path: str, unit: str, max_chars: int, files: Files) -> tuple[str, bool]:
    """Return the unit with what it names around it, or the file, and whether that is all of it.

    Of what is too long it is the outline, or else the beginning.
    """
    source = files.read(folder / path)
    units = list_units(source, language_for(folder / path))
    named = next((each for each in units if each.qualified_name == unit), None)
    if named is None:
        whole, inner = source.text, units
    else:
        whole = source.text_of(named.first_line, named.last_line)
        inner = [each for each in units if named.first_line <= each.first_line <= named.last_line]
        around = surroundings(source, units, named, "")
        if around and len(around) + len(whole) <= max_chars:
            whole = f"{around}\n\n{whole}"
    if len(whole) <= max_chars:
        return whole.strip("\n"), True
    short = outline(source, inner) if len(inner) > 1 else whole
    if len(short) > max_chars:
        short = short[:max_chars].rpartition("\n")[0] + "\n…"
    return short.strip("\n"), False


def _with_best_units(
    found: Sequence[CodePiece], folder: Path, text: str, files: Files
) -> Iterator[CodePiece]:
    """Yield the pieces. Behind a file that is too long for the budget comes the unit that fits the words."""
    for piece in found:
        yield piece
        source = files.read(folder / piece.path)
        if piece.unit or len(source.text) <= BUDGET_TOKENS * CHARS_PER_TOKEN:
            continue
        units = list_units(source, language_for(folder / piece.path))
        worth = nats_for_units(source, units, text)
        if worth and max(worth) > 0:
            yield replace(piece, unit=units[worth.index(max(worth))].qualified_name)


# ---- names in the question --------------------------------------------------------------------------


def _by_name(folder: Path, text: str, recent: Sequence[Place]) -> list[CodePiece]:
    """Return the units and files that the question names, in its order."""
    spoken = list(dict.fromkeys(_NAME.findall(text)))
    near = [each for path in _paths(recent) if (each := list_file(folder, path))]
    found = [piece for name in spoken for piece in _units_named(name, near, by="recent")]
    if not _may_name_code(text, spoken):
        return found
    everywhere = list_files(folder)
    exact = [name for name in spoken if "." in name or ":" in name or looks_like_code(name, text)]
    known = {(piece.path, piece.unit) for piece in found}
    for name in exact:
        for piece in _units_named(name, everywhere, by="name"):
            if (piece.path, piece.unit) not in known:
                found.append(piece)
    named = files_named_in(text, [str(each.path) for each in everywhere])
    return found or [CodePiece(str(path), by="name") for path in named]


def _may_name_code(text: str, spoken: Sequence[str]) -> bool:
    """Return whether it is worth looking through the repository."""
    return any(separator in text for separator in "./") or any(looks_like_code(name, text) for name in spoken)


def _units_named(name: str, listed: Sequence[Listed], *, by: str) -> list[CodePiece]:
    """Return the units of that name, unless there are too many. Tests come only where nothing else does."""
    wanted = name.replace("::", ".")
    found = []
    for each in listed:
        own = wanted.removeprefix(f"{each.path.stem}.")
        found += [(each, unit) for unit in each.names if f".{unit}".endswith(f".{own}")]
    plain = [pair for pair in found if "test" not in pair[0].words] or found
    if len(plain) > MAX_HOLDERS:
        plain = [pair for pair in plain if pair[1] == wanted]
    if len(plain) > MAX_HOLDERS or (by == "recent" and len(name) < 3):
        return []
    return [
        CodePiece(str(each.path), unit, by="recent" if by == "recent" else "name") for each, unit in plain
    ]


# ---- what was spoken of before ----------------------------------------------------------------------


def _by_recent(folder: Path, text: str, recent: Sequence[Place]) -> list[CodePiece]:
    """Return the file whose name shares a word with the question, or what the question points back at."""
    asked = words(text)
    for place in recent:
        if asked & words(place.path.stem.replace("_", " ")):
            return [CodePiece(str(place.path), by="recent")]
    for place in recent[:1]:
        if _POINTING.search(text) or (place.is_last_edit and _BACK.search(text)):
            return [CodePiece(str(place.path), _still_there(folder, place), by="recent")]
    return []


def _still_there(folder: Path, place: Place) -> str:
    """Return the place's unit if the file has it now, or else "" for the whole file."""
    listed = list_file(folder, place.path)
    return place.unit if listed and place.unit in listed.names else ""


def _recent_places(history: History, folder: Path) -> Iterator[Place]:
    """Yield where the last turns were, the latest first. Files that are gone are passed over."""
    over = [turn for turn in history.turns if turn.status is not None]
    for index, turn in enumerate(reversed(over[-RECENT_TURNS:])):
        edits = [(edit.path, edit.unit) for edit in turn.edits]
        mentions = [_split(mention, folder) for mention in turn.mentions]
        pieces = [(piece.path, piece.unit) for piece in turn.code]
        for path, unit in reversed([*mentions, *pieces, *edits]):
            place = _relative(path, folder)
            if (folder / place).is_file():
                yield Place(place, unit, is_last_edit=index == 0 and bool(edits))


def _split(mention: str, folder: Path) -> tuple[str, str]:
    """Return a mention's path and the name of its unit; "" where it names none, or lines."""
    try:
        target = parse_target(str(folder / mention))
    except UsageError:
        return mention, ""
    return str(target.path), target.selector if isinstance(target.selector, str) else ""


def _relative(path: str, folder: Path) -> Path:
    return Path(path).relative_to(folder) if Path(path).is_relative_to(folder) else Path(path)


def _paths(places: Sequence[Place]) -> list[Path]:
    return list(dict.fromkeys(place.path for place in places))


# ---- what the model has read already ----------------------------------------------------------------


def _is_inside(piece: CodePiece, pieces: Sequence[CodePiece]) -> bool:
    """Return whether another piece has this one."""
    return any(_covers(other, piece.path, piece.unit) for other in pieces)


def _is_known(piece: CodePiece, history: History, folder: Path) -> bool:
    """Return whether the piece is in the log as it is now: it was read, and its file is older than that."""
    try:
        changed_at_s = (folder / piece.path).stat().st_mtime
    except OSError:
        return True
    last = history.compaction.turn if history.compaction else 0
    answered = [turn for turn in history.turns if turn.number > last and turn.is_answered]
    return any(changed_at_s < turn.at_s and _has_read(turn, piece, folder) for turn in answered)


def _has_read(turn: Turn, piece: CodePiece, folder: Path) -> bool:
    mentioned = [_split(mention, folder) for mention in turn.mentions if ":" not in mention]
    whole = [CodePiece(str(_relative(path, folder))) for path, _ in mentioned]
    return any(_covers(other, piece.path, piece.unit) for other in [*whole, *turn.code])


def _covers(other: CodePiece, path: str, unit: str) -> bool:
    if other.path != path or (other.is_shortened and other.unit != unit):
        return False
    return not other.unit or f"{unit}.".startswith(f"{other.unit}.")
