"""The answer for one part of a long unit made fit for its place between the lines around it.

Owns what `tidy` cannot know of lines in the middle of a unit: lines around that the answer repeats, and an
answer at another indentation than its place. Does not judge the result (`verify`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from vivace.agent.edits.apply.source import SourceFile, splice, split_lines
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.check.verify import asks_for_removal
from vivace.agent.edits.find.languages import Language
from vivace.agent.edits.find.units import Unit, indent_of
from vivace.agent.edits.proposal import FileProposal, make_proposal
from vivace.agent.edits.write.rewrite import Replaced, Rewrite

REPEATED_LINES = 2  # lines around, that say something, which an answer repeats by mistake
END_CHARS = 12  # letters and digits of two lines that tell where an answer ended
BELOW_LINES, AGAIN_LINES = 30, 3  # 3 of the 30 lines below a part are no coincidence in its answer
LEFT_OUT_LINES = 3  # at the end of a part: the answer broke off
TELLING_CHARS = 3  # letters and digits of a line that says something


def without_neighbours(source: SourceFile, part: Unit, text: str) -> str:
    """Return the text without lines at its edges that stand above or below the part already."""
    body, tail = _without_tail(split_lines(text)[0])
    old, _ = _without_tail(source.lines[part.first_line - 1 : part.last_line])
    below = source.lines[part.last_line :]
    above = source.lines[: part.first_line - 1]
    if count := _repeated(body[::-1], old[::-1], below):
        body, _ = _without_tail(body[: len(body) - count])
    body = body[_repeated(body, old, above[::-1]) :]
    return "".join(f"{line}\n" for line in [*body, *tail])


def _reached(source: SourceFile, unit: Unit, part: Unit, text: str) -> tuple[Unit, str] | None:
    """Return the part up to where an answer that went on below it has come, and its text; None if it did not.

    A model that finds its change further down goes on copying: the last two lines tell where it ended.
    """
    body, _ = _without_tail(split_lines(text)[0])
    end, old = body[-2:], list(source.lines[part.first_line - 1 : part.last_line])
    below = list(source.lines[part.last_line : unit.last_line])
    if len(end) < 2 or sum(sum(map(str.isalnum, line)) for line in end) < END_CHARS:
        return None
    places = [at for at in range(len(below) - 1) if below[at : at + 2] == end]
    if len(places) != 1 or any(old[at : at + 2] == end for at in range(len(old) - 1)):
        return None
    return replace(part, last_line=part.last_line + places[0] + 2), "".join(f"{line}\n" for line in body)


def _without_tail(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines, and the blank ones at their end apart."""
    end = next((n for n in range(len(lines), 0, -1) if lines[n - 1].strip()), 0)
    return list(lines[:end]), list(lines[end:])


def _repeated(lines: Sequence[str], old: Sequence[str], around: Sequence[str]) -> int:
    """Return how many lines at the edge of a text (outermost first) are those around it (nearest first)."""
    for count in range(min(len(lines), len(around)), 0, -1):
        if list(lines[:count]) == list(around[:count])[::-1]:
            said = sum(sum(map(str.isalnum, line)) >= TELLING_CHARS for line in lines[:count])
            return count if said >= REPEATED_LINES and list(old[:count]) != list(lines[:count]) else 0
    return 0


def reindented(source: SourceFile, part: Unit, text: str) -> Iterator[str]:
    """Yield the text at other indentations, where it does not parse: all of it, or all but its first line."""
    lines = split_lines(text)[0]
    shown = [line for line in lines if line.strip()]
    old = [line for line in source.lines[part.first_line - 1 : part.last_line] if line.strip()]
    if not shown or not old:
        return
    if (has := indent_of(shown[0])) != part.indent:
        yield _moved(lines, has, part.indent)
    rest = [line for line in lines[lines.index(shown[0]) + 1 :] if line.strip()]
    least, usual = _least_indent(rest), _least_indent(old[1:])
    if rest and len(least) < len(usual):
        first = lines[: lines.index(shown[0]) + 1]
        yield "".join(f"{line}\n" for line in first) + _moved(lines[len(first) :], least, usual)


def _least_indent(lines: Sequence[str]) -> str:
    return min((indent_of(line) for line in lines), key=len, default="")


def _moved(lines: Sequence[str], has: str, wanted: str) -> str:
    return "".join(
        f"{wanted}{line[len(has) :]}\n" if line.strip() and line.startswith(has) else f"{line}\n"
        for line in lines
    )


def part_proposal(
    source: SourceFile, language: Language | None, unit: Unit, request: Rewrite, text: str, instruction: str
) -> FileProposal:
    """Return what the file becomes with an answer for the request's part, and the parts written before it."""
    part = request.part
    assert part is not None
    lines = replace(part, kind="lines")
    answer = tidy(source, language, lines, text)
    if not request.replaced and (reached := _reached(source, unit, part, answer)):
        request, answer = replace(request, part=reached[0]), reached[1]
    else:
        answer = without_neighbours(source, part, answer)
    made = _made(source, unit, request, answer, instruction)
    part = request.part or part
    if problem := _what_is_wrong(source, part, answer, instruction):
        return replace(made, problems=(problem,))
    if made.problems:
        tries = (_made(source, unit, request, each, instruction) for each in reindented(source, part, answer))
        return next((each for each in tries if not each.problems), made)
    return made


def _what_is_wrong(source: SourceFile, part: Unit, answer: str, instruction: str) -> str:
    """Return a sentence about an answer that ends before its part does, or goes on below; "" if neither."""
    if asks_for_removal(instruction):
        return ""
    if not answer.strip():
        return "The answer is empty."
    old = source.lines[part.first_line - 1 : part.last_line]
    matcher = SequenceMatcher(None, old, split_lines(answer)[0], autojunk=False)
    below = set(source.lines[part.last_line : part.last_line + len(old) + BELOW_LINES]) - set(old)
    again = sum(sum(map(str.isalnum, line)) >= END_CHARS for line in split_lines(answer)[0] if line in below)
    if again >= AGAIN_LINES:
        return f"The answer repeats {again} lines that stand below its part."
    kind, first, _, _, _ = matcher.get_opcodes()[-1]
    left_out = sum(bool(line.strip()) for line in old[first:]) if kind == "delete" else 0
    return f"The answer leaves out the last {left_out} lines." if left_out >= LEFT_OUT_LINES else ""


def _made(source: SourceFile, unit: Unit, request: Rewrite, answer: str, instruction: str) -> FileProposal:
    part = request.part
    assert part is not None
    texts = [*request.replaced, Replaced(part.first_line, part.last_line, answer)]
    after = source
    for each in sorted(texts, key=lambda each: -each.first_line):  # from the end: lines above stay in place
        raw = splice(after, each.first_line, each.last_line, each.new_text)
        after = replace(after.with_bytes(raw), newline=source.newline)
    return make_proposal(source, unit, instruction, after.raw)
