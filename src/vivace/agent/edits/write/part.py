"""The request for one part of a long unit: the unit in numbered parts, and an answer that names its part.

Owns this prompt. Choosing a part and writing it are continuations of the same messages, so that the unit is
read once. Does not choose (`find.part_ranking`), nor judge the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import fence_tag_for
from vivace.agent.edits.find.part_ranking import Shown
from vivace.agent.edits.find.parts import Part
from vivace.agent.edits.find.units import Unit, indent_of
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.edits.write.context import surroundings
from vivace.agent.edits.write.rewrite import CHARS_PER_TOKEN, Replaced, Rewrite, opening_for
from vivace.agent.memory.recall import NOTHING, Recalled
from vivace.agent.prompting import Message, begun_answer, read_prompt, user

SPARE_TOKENS = 300  # what an answer may have beyond the part that it replaces
STOP_LINES = 4  # at most, below a part, by which the end of an answer is known
TELLING_CHARS = 12  # letters and digits of these


@dataclass(frozen=True)
class PartsRequest:
    """What the model reads before it answers for any part of a unit."""

    source: SourceFile
    unit: Unit
    shown: Shown
    messages: list[Message]  # without an answer
    fence: str

    @property
    def tag(self) -> str:
        return f"{self.fence}{fence_tag_for(self.source.path)}\n"

    def unit_of(self, part: Part) -> Unit:
        """Return a part as lines that are written anew."""
        lines = self.source.lines[part.first_line - 1 : part.last_line]
        indent = next((indent_of(line) for line in lines if line.strip()), "")
        name = f"{self.unit.qualified_name} (part)"
        return Unit("part", name, name, part.first_line, part.last_line, indent=indent)

    def answered(self, written: Sequence[tuple[Part, str]]) -> str:
        """Return the answer so far: the parts that were written, each closed by its fence."""
        return "".join(
            f"Part {self.shown.number(part)}:\n{self.tag}{text}{self.fence}\n\n" for part, text in written
        )

    def rewrite(self, part: Part, instruction: str, written: Sequence[tuple[Part, str]] = ()) -> Rewrite:
        """Return the request for a part. `written`: the parts that come before it in the same answer."""
        old = self.source.text_of(part.first_line, part.last_line)
        opening = self._opening(part, old, instruction)
        begun = f"{self.answered(written)}Part {self.shown.number(part)}:\n{self.tag}{opening}"
        return Rewrite(
            [*self.messages, begun_answer(begun)],
            self.fence,
            opening,
            int(len(old) / CHARS_PER_TOKEN) + SPARE_TOKENS,
            old.removeprefix(opening) + self.fence,
            self._lines_below(part, old),
            part=self.unit_of(part),
            replaced=tuple(Replaced(each.first_line, each.last_line, text) for each, text in written),
        )

    def _opening(self, part: Part, old: str, instruction: str) -> str:
        """Return the text up to the unit's name, where the part has it."""
        if part.first_line != self.unit.first_line:
            return ""
        opening = opening_for(self.source, self.unit, instruction)
        return opening if old.startswith(opening) else ""

    def _lines_below(self, part: Part, old: str) -> tuple[str, ...]:
        """Return the lines below a part as a stop, as many as tell them from others."""
        below = self.source.lines[part.last_line : part.last_line + STOP_LINES]
        for count in range(1, len(below) + 1):
            text = "\n".join(below[:count])
            if sum(map(str.isalnum, text)) >= TELLING_CHARS:
                return (f"\n{text}\n",) if text not in old else ()
        return ()


def parts_request(
    source: SourceFile,
    units: list[Unit],
    unit: Unit,
    shown: Shown,
    instruction: str,
    *,
    done: str = "",
    recalled: Recalled = NOTHING,
) -> PartsRequest:
    """Return what the model reads of a long unit: as `rewrite_request`, but in parts."""
    fence = fence_for(source.text)
    asked = PartsRequest(source, unit, shown, [], fence)
    name, tag = source.path.name, asked.tag
    around = surroundings(source, units, unit, instruction)
    texts = [recalled.plain_rules] if recalled.files else []
    texts += [f"The rest of {name}, for orientation:\n{tag}{around}\n{fence}"] if around else []
    if done:
        texts.append(f"Done already for this task:\n{fence}diff\n{done}\n{fence}")
    texts.append(f"The piece of {name} to change, in {len(shown.parts)} parts:")
    end = unit.first_line - 1
    for number, part in enumerate(shown.parts, 1):
        texts += ["…"] if part.first_line > end + 1 else []
        texts.append(f"Part {number}:\n{tag}{source.text_of(part.first_line, part.last_line)}{fence}")
        end = part.last_line
    texts += [recalled.reminder] if recalled.notes else []
    texts.append(f"Task: {instruction}")
    return PartsRequest(source, unit, shown, [*read_prompt("part"), user("\n\n".join(texts))], fence)
