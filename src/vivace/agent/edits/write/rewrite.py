"""The request for one rewrite: what the model is told, and how its answer is opened for it.

Owns the prompt and the opening: the fence, and the unit's text up to and including its name, so that a small
model cannot wander off but may still change parameters. Does not own the stream (`edit`) or the answer.
"""

import re
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import fence_tag_for
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.edits.write.context import surroundings
from vivace.agent.memory.recall import NOTHING, Recalled
from vivace.agent.prompting import Message, begun_answer, read_prompt, user

CHARS_PER_TOKEN = 2.5  # few, to be safe: it bounds the answer's length
SPARE_TOKENS = 700  # what an answer may have beyond the text it replaces
_RENAMING = re.compile(r"\b(renam\w*|call (it|this|the)|names?d?)\b", re.I)


@dataclass(frozen=True)
class Replaced:
    """Lines of the file as it was read, and the text that comes in their place."""

    first_line: int
    last_line: int
    new_text: str


@dataclass(frozen=True)
class Rewrite:
    messages: list[Message]
    fence: str
    opening: str  # text of the new unit that we wrote ourselves; the model goes on behind it
    max_tokens: int
    prediction: str = ""  # what the answer will resemble, behind the opening
    other_stops: tuple[str, ...] = ()
    part: Unit | None = None  # what the answer replaces, where that is not the whole unit
    replaced: tuple[Replaced, ...] = ()  # other parts of the unit, which were written before

    @property
    def stop(self) -> list[str]:
        return [f"\n{self.fence}", *self.other_stops]


def rewrite_request(
    source: SourceFile,
    units: list[Unit],
    unit: Unit,
    instruction: str,
    *,
    done: str = "",
    is_alone: bool = True,
    recalled: Recalled = NOTHING,
) -> Rewrite:
    """Return the request. `done` is a diff of what the same instruction has changed already.

    `is_alone`: the unit is all that is rewritten. Otherwise the answer ends where another one begins.
    `recalled`: rules come first, since they stay while the user types; notes that fit come before the task.
    """
    old = source.text_of(unit.first_line, unit.last_line)
    is_prose = not units and unit.kind in ("file", "lines")
    fence = fence_for(source.text, least=4 if is_prose else 3)
    tag = f"{fence}{fence_tag_for(source.path)}\n"
    around = surroundings(source, units, unit, instruction)
    opening = opening_for(source, unit, instruction)
    name = source.path.name
    parts = [recalled.plain_rules] if recalled.files else []
    parts += [f"The rest of {name}, for orientation:\n{tag}{around}\n{fence}"] if around else []
    if done:
        parts.append(f"Done already for this task:\n{fence}diff\n{done}\n{fence}")
    if unit.kind == "new" and not source.exists:
        parts.append(f"{name} is a new file, and still empty.")
    elif unit.kind == "new":
        neighbour = _neighbour(units, unit)
        below = source.text_of(neighbour.first_line, neighbour.last_line) if neighbour else ""
        parts.append(f"The new piece comes directly after this one in {name}:\n{tag}{below}{fence}")
    else:
        parts.append(f"The piece of {name} to rewrite:\n{tag}{old}{fence}")
    parts += [recalled.reminder] if recalled.notes else []
    parts.append(f"Task: {instruction}")
    prompt = "add" if unit.kind == "new" else "revise" if is_prose else "rewrite"
    messages = [*read_prompt(prompt), user("\n\n".join(parts)), begun_answer(tag + opening)]
    max_tokens = int(len(old) / CHARS_PER_TOKEN) + SPARE_TOKENS
    rest = "" if unit.kind == "new" else old.removeprefix(opening) + fence
    return Rewrite(messages, fence, opening, max_tokens, rest, () if is_alone else _next_units(unit))


def _next_units(unit: Unit) -> tuple[str, ...]:
    """Return how another unit begins behind this one."""
    if unit.kind not in ("function", "method", "class"):
        return ()
    return tuple(f"\n\n{unit.indent}{word} " for word in ("def", "class", "function"))


def opening_for(source: SourceFile, unit: Unit, instruction: str) -> str:
    """Return the unit's text up to and with its name, or without it if the instruction renames it."""
    if not unit.opening:
        return unit.indent
    end = _end_of_name(unit)
    if end is None:
        return source.lines[unit.first_line - 1][: len(unit.indent)]
    if _RENAMING.search(instruction) and re.search(rf"\b{re.escape(unit.name)}\b", instruction):
        end -= len(unit.name)
        return unit.opening[:end].rstrip(" ")  # no trailing space: tokens begin with theirs
    return unit.opening[:end]


def _end_of_name(unit: Unit) -> int | None:
    """Return where the unit's name ends in its opening, below decorators and doc comments."""
    lines = unit.opening.split("\n")
    skipped = unit.signature_first_line - unit.first_line
    start = sum(len(line) + 1 for line in lines[:skipped])
    found = re.compile(rf"(?<!\w){re.escape(unit.name)}(?!\w)").search(unit.opening, start)
    return found.end() if found else None


def _neighbour(units: list[Unit], place: Unit) -> Unit | None:
    """Return the unit that a new one is written below: the smallest that ends there."""
    above = [unit for unit in units if unit.last_line == place.last_line]
    return max(above, key=lambda unit: unit.first_line, default=None)
