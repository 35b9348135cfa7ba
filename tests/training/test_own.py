"""The model's own answers: which are right, and what becomes of them."""

import pytest

pytest.importorskip("torch")

from tests.training.bed import END, repeating, tiny_decoder
from vivace.training.own import Task, is_right, sample_own

BEFORE = "    def size(self):\n        return self.kept + 1\n"
AFTER = "    def size(self):\n        return self.kept\n"
TASK = Task("a", "edit", "```", "    def size", BEFORE, AFTER, [])


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("edit", "(self):\n        return self.kept\n```", True),
        ("mutation", "(self):\n\n        return (self.kept)  # as it is\n```", True),  # the same program
        ("edit", "(self):\n        return self.kept\n", False),  # it did not end
        ("edit", "(self):\n        return self.kept + 2\n```", False),
        ("edit", "(self):\n        return self.kept + 1\n```", False),  # unchanged
        ("edit", "(self):\n        return (self.kept\n```", False),  # no program
        ("open", "(self):\n        return self.kept + 2\n```", True),  # many answers are right
        ("open", "(self):\n        return self.kept + 1\n```", False),
        ("open", "(self):\n" + "        print(self)\n" * 9 + "```", False),  # far longer
    ],
)
def test_what_is_right(kind: str, answer: str, expected: bool) -> None:
    """An exact request has one answer, whatever its layout; an open one must change something, and little."""
    task = Task("a", "open" if kind == "open" else "edit", "```", TASK.opening, BEFORE, AFTER, [])
    assert is_right(task, answer) is expected


def test_right_answers_become_examples() -> None:
    """Each different right one at most twice, with its prompt, its end, and its changes marked."""
    examples = repeating(6)
    tasks = [Task(row.name, "edit", "```", "x = ", "x = 1\n", "x = 2\n", [50, END]) for row in examples.rows]
    said = iter(range(10_000))

    def text_of(_tokens: object) -> str:
        return "2\n```" if next(said) % 3 else "1\n```"

    found, counts = sample_own(
        tiny_decoder(), examples, tasks, range(512), text_of, samples=6, temperature=1.0
    )
    assert (counts["tasks"], counts["answers"]) == (6, 36)
    assert counts["right"] == 24
    by_name = {row.name: row for row in examples.rows}
    for row in found.rows:
        assert row.prompt == by_name[row.name].prompt
        assert row.answer[-1] == END
        assert len(row.changed) in (0, len(row.answer))
    assert all(sum(each.name == name for each in found.rows) <= 2 for name in by_name)
