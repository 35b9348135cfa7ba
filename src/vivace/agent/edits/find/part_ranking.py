"""Which part of a long unit a change belongs to: words first, then the model's scores of the parts' numbers.

Owns which parts the model sees, their order by worth, and whether a further one must change as well. Does not
own where parts begin and end (`parts`) or the prompt (`write.part`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.check.substance import is_about_words
from vivace.agent.edits.find.locate import Scorer
from vivace.agent.edits.find.parts import Part
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.places.ranking import nats_for_units
from vivace.agent.prompting import Message, begun_answer

MOST_SHOWN_LINES = 150  # of a longer unit only the parts that share most words with the instruction
WORDS_SHARE = 0.5  # of the nats that words say for a whole unit
WORDS_ALONE_NATS = 40.0  # what speaks against a part of comments, unless words are to be changed
NEAR_NATS = 4.0  # a part that is further behind the best one is not tried after it
DONE = "Done."


@dataclass(frozen=True)
class Shown:
    """The parts of a unit that the model sees, by their numbers from 1, and what words say for each."""

    parts: tuple[Part, ...]
    nats: tuple[float, ...]

    def number(self, part: Part) -> int:
        return self.parts.index(part) + 1


def shown_parts(source: SourceFile, units: Sequence[Unit], parts: Sequence[Part], instruction: str) -> Shown:
    """Return the parts to show, in the order of the file: the first one, and those that words speak for."""
    worth = nats_for_units(source, [_as_unit(units, part) for part in parts], instruction)
    order = sorted(range(len(parts)), key=lambda index: (index > 0, -worth[index]))
    kept, lines = set[int](), 0
    for index in order:
        lines += parts[index].lines
        if kept and lines > MOST_SHOWN_LINES:
            break
        kept.add(index)
    if not is_about_words(instruction):  # to change these alone would be no answer
        worth = [nats - WORDS_ALONE_NATS * part.is_words for nats, part in zip(worth, parts, strict=True)]
    chosen = sorted(kept)
    return Shown(tuple(parts[index] for index in chosen), tuple(worth[index] for index in chosen))


def _as_unit(units: Sequence[Unit], part: Part) -> Unit:
    """Return a part as a unit, with the name of the function or method that begins in it."""
    begun = [unit for unit in units if part.first_line < unit.first_line <= part.last_line]
    name, parent = (begun[-1].name, begun[-1].parent) if begun else ("", None)
    return Unit("lines", name, name, part.first_line, part.last_line, parent=parent)


async def rank_parts(scorer: Scorer, messages: Sequence[Message], shown: Shown) -> list[Part]:
    """Return the parts that were shown and may be meant, the likeliest first."""
    labels = [f" {number}:\n" for number in range(1, len(shown.parts) + 1)]
    said = await scorer.score([*messages, begun_answer("Part")], labels)
    total = [score + WORDS_SHARE * nats for score, nats in zip(said, shown.nats, strict=True)]
    order = sorted(range(len(total)), key=lambda index: -total[index])
    return [shown.parts[index] for index in order if total[index] >= total[order[0]] - NEAR_NATS]


async def further_part(
    scorer: Scorer, messages: Sequence[Message], shown: Shown, answer: str, written: Sequence[Part]
) -> Part | None:
    """Return the part that must change too, or None. `answer` has the parts that were written so far."""
    left = [part for part in shown.parts if part not in written]
    labels = [DONE, *(f"Part {shown.number(part)}:\n" for part in left)]
    said = await scorer.score([*messages, begun_answer(answer)], labels)
    best = max(range(len(said)), key=lambda index: said[index])
    return left[best - 1] if best else None
