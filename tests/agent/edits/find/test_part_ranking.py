"""Which parts of a long unit the model sees, and which one is taken."""

from tests.agent.edits.find.outlines import source_of, units_of
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.part_ranking import (
    DONE,
    MOST_SHOWN_LINES,
    Shown,
    further_part,
    rank_parts,
    shown_parts,
)
from vivace.agent.edits.find.parts import Part, parts_of
from vivace.agent.edits.part_writing import first_messages
from vivace.agent.edits.rewriting import UnitTask
from vivace.agent.edits.write.part import parts_request
from vivace.agent.prompting import Message

STEP = "    if a > {0}:\n        a -= {0}\n        log(a, {0})\n"
MARKED = "    if a > 0:\n        a = frobnicate(a)\n        log(a, 0)\n"


class Scorer:
    """Gives these candidates these scores, all others -9, and remembers what it was asked."""

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores
        self.asked: list[tuple[list[Message], list[str]]] = []

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        self.asked.append((messages, candidates))
        return [self.scores.get(each, -9.0) for each in candidates]


def task_of(steps: int, instruction: str = "x", marked: int | None = None) -> UnitTask:
    body = "".join(MARKED if n == marked else STEP.format(n) for n in range(steps))
    text = f"def f(a):\n{body}    return a\n"
    source, units = source_of("a.py", text), units_of("a.py", text)
    return UnitTask(source, PYTHON, units, units[0], instruction)


def shown_of(task: UnitTask) -> tuple[list[Part], Shown]:
    cut = parts_of(task.source, PYTHON, task.unit)
    return cut, shown_parts(task.source, task.units, cut, task.instruction)


def test_of_a_very_long_unit_the_best_parts_are_shown() -> None:
    """At most 150 lines: the first part, and the one that has a word of the instruction, in file order."""
    task = task_of(200, "frobnicate twice", marked=180)
    cut, shown = shown_of(task)
    assert sum(part.lines for part in shown.parts) <= MOST_SHOWN_LINES
    assert shown.parts[0] == cut[0]
    assert list(shown.parts) == sorted(shown.parts, key=lambda part: part.first_line)
    best = max(zip(shown.nats, shown.parts, strict=True), key=lambda pair: pair[0])[1]
    assert "frobnicate" in task.source.text_of(best.first_line, best.last_line)


def test_what_is_left_out_is_marked() -> None:
    """The prompt has the shown parts by number, and a sign where lines are left out."""
    task = task_of(200, "frobnicate twice", marked=180)
    _, shown = shown_of(task)
    asked = parts_request(task.source, task.units, task.unit, shown, task.instruction)
    text = asked.messages[-1]["content"]
    assert f"in {len(shown.parts)} parts:" in text
    assert "\n\n…\n\nPart " in text
    assert text.endswith("Task: frobnicate twice")


async def test_words_and_scores_choose_together() -> None:
    """The model decides where words are silent; a part far behind is not tried at all."""
    task = task_of(30)
    _, shown = shown_of(task)
    scorer = Scorer({" 4:\n": -1.0, " 2:\n": -2.0})
    ranked = await rank_parts(scorer, [], shown)
    assert ranked == [shown.parts[3], shown.parts[1]]
    marked = task_of(30, "call frobnicate twice", marked=20)
    _, shown = shown_of(marked)
    (best, *_) = await rank_parts(Scorer({f" {n}:\n": -1.0 for n in range(1, 40)}), [], shown)
    assert "frobnicate" in marked.source.text_of(best.first_line, best.last_line)


async def test_a_further_part_must_beat_the_end() -> None:
    """The end of the answer is scored against the parts that were not written yet."""
    _, shown = shown_of(task_of(30))
    first = shown.parts[0]
    ended = Scorer({DONE: -0.1, "Part 2:\n": -2.0, "Part 1:\n": 0.0})
    assert await further_part(ended, [], shown, "", [first]) is None
    assert "Part 1:\n" not in ended.asked[0][1]
    more = Scorer({DONE: -2.0, "Part 3:\n": -0.1})
    assert await further_part(more, [], shown, "", [first]) == shown.parts[2]


async def test_the_unit_is_read_once() -> None:
    """What is read ahead, what chooses a part and what writes it begin with the same messages."""
    task = task_of(30, "x")
    _, shown = shown_of(task)
    asked = parts_request(task.source, [], task.unit, shown, task.instruction)
    scorer = Scorer({})
    await rank_parts(scorer, asked.messages, shown)
    rewrite = asked.rewrite(shown.parts[1], "x")
    assert first_messages(task) == asked.messages == scorer.asked[0][0][:-1] == rewrite.messages[:-1]
    assert rewrite.messages[-1]["content"].startswith(scorer.asked[0][0][-1]["content"] + " 2:\n")


def test_the_first_part_is_opened_up_to_the_name() -> None:
    """The unit's name is written for the model where the part has it, and nothing is in any other part."""
    task = task_of(30)
    _, shown = shown_of(task)
    asked = parts_request(task.source, [], task.unit, shown, "x")
    assert asked.rewrite(shown.parts[0], "x").opening == "def f"
    assert asked.rewrite(shown.parts[1], "x").opening == ""


def test_words_are_changed_only_where_they_are_meant() -> None:
    """A docstring that shares all words with the instruction is no part, unless it is about docstrings."""
    doc = '    """Log the number twice.\n\n' + "    More about it.\n" * 12 + '    """\n'
    plain = task_of(30)
    text = plain.source.text.replace("def f(a):\n", f"def f(\n    a,\n    b=0,\n    c=0,\n):\n{doc}")
    source, units = source_of("a.py", text), units_of("a.py", text)
    for instruction, is_meant in (("log the number twice", False), ("fix the docstring: number", True)):
        cut = parts_of(source, PYTHON, units[0])
        shown = shown_parts(source, units, cut, instruction)
        best = max(zip(shown.nats, shown.parts, strict=True), key=lambda pair: pair[0])[1]
        assert best.is_words == is_meant
