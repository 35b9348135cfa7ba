"""Which edits are measured, and what the model is asked for each."""

import json
from pathlib import Path

import pytest

from vivace.bench.rows import (
    ROWS_FILE,
    UNIT_TOKENS,
    EditCase,
    changed_lines,
    choose_cases,
    make_case,
    quickest,
    read_rows,
)
from vivace.errors import FileProblem
from vivace.models.families.qwen25 import Qwen25
from vivace.models.tokenizer import GgufTokenizer, Tokenizer

NOWHERE = Path("/there/is/no/such/folder")


@pytest.fixture(scope="module")
def tokenizer(smol: Path) -> Tokenizer:
    return GgufTokenizer(smol)


def text(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, tokens)).decode()


def case(name: str, *, prompt_tokens: int, unit_tokens: int) -> EditCase:
    return EditCase(name, [1] * prompt_tokens, [], [], unit_tokens)


def test_a_missing_folder_falls_back_to_the_shipped_edits() -> None:
    """The dozen that ships is used, and the words say which folder is missing."""
    found = read_rows(NOWHERE)
    assert len(found.rows) == 12
    assert "ship with Vivace" in found.source
    assert str(NOWHERE) in found.source


def test_a_folder_with_rows_is_used(tmp_path: Path) -> None:
    """Fields that we do not know are ignored, and the words name the file."""
    row = {"repo": "r", "path": "a.py", "instruction": "i", "before": "x", "after": "y", "commit": "c"}
    (tmp_path / ROWS_FILE).write_text(json.dumps(row) + "\n")
    found = read_rows(tmp_path)
    assert [each.path for each in found.rows] == ["a.py"]
    assert ROWS_FILE in found.source


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    """A file with something else in it is an error in one sentence."""
    (tmp_path / ROWS_FILE).write_text('{"path": 3}\n')
    with pytest.raises(FileProblem, match="does not hold edits"):
        read_rows(tmp_path)


def test_every_shipped_edit_can_be_taken(tokenizer: Tokenizer) -> None:
    """Each of the dozen is a small change inside one function or class, in files of 30 to 120 lines."""
    rows = read_rows(NOWHERE).rows
    cases = choose_cases(rows, tokenizer, Qwen25(tokenizer), 100)
    assert len(cases) == len(rows)
    assert all(0 < each.unit_tokens <= UNIT_TOKENS for each in cases)
    assert {Path(row.path).suffix for row in rows} == {".py", ".ts", ".go", ".rs"}
    assert all(30 <= row.before.count("\n") <= 120 for row in rows)


def test_the_choice_is_the_beginning_of_the_file(tokenizer: Tokenizer) -> None:
    """The first rows that can be taken, in file order, the same ones every time."""
    rows, template = read_rows(NOWHERE).rows, Qwen25(tokenizer)
    names = [each.name for each in choose_cases(rows, tokenizer, template, 3)]
    assert names == [
        "inventory/stock.py:Stock.remove",
        "weather/client.py:WeatherClient._fetch",
        "logs/parse.py:parse_line",
    ]
    assert names == [each.name for each in choose_cases(rows, tokenizer, template, 3)]


def test_the_prompt_is_the_agents_and_the_prediction_goes_on_from_it(tokenizer: Tokenizer) -> None:
    """The prompt ends in the opening of the answer; opening and prediction together are the old unit."""
    row = read_rows(NOWHERE).rows[0]
    made = make_case(row, tokenizer, Qwen25(tokenizer))
    assert made is not None
    prompt, predicted = text(tokenizer, made.prompt), text(tokenizer, made.prediction)
    assert row.instruction in prompt
    assert prompt.endswith("    def remove")
    assert made.stop == ["\n```"]
    assert "    def remove" + predicted.removesuffix("```") in row.before


def test_a_change_outside_of_any_unit_is_not_taken(tokenizer: Tokenizer) -> None:
    """A changed import belongs to no function or class."""
    row = read_rows(NOWHERE).rows[0]
    moved = type(row)(row.repo, row.path, row.instruction, row.before, "import os\n" + row.before)
    assert make_case(moved, tokenizer, Qwen25(tokenizer)) is None


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", (2, 2)),
        ("a\nb\nc\n", "A\nb\nC\n", (1, 3)),
        ("a\nb\nc\n", "a\nc\n", (2, 2)),
        ("a\nb\n", "a\nnew\nb\n", (1, 2)),
        ("a\na\na\n", "a\na\n", (3, 3)),
    ],
)
def test_changed_lines(before: str, after: str, lines: tuple[int, int]) -> None:
    """From the first changed line to the last; an insertion has the lines on both of its sides."""
    assert changed_lines(before, after) == lines


def test_a_quick_run_takes_short_prompts_with_enough_to_write() -> None:
    """The shortest prompts among units that are worth timing, in file order."""
    cases = [
        case("long", prompt_tokens=900, unit_tokens=300),
        case("tiny", prompt_tokens=100, unit_tokens=10),
        case("second", prompt_tokens=300, unit_tokens=150),
        case("first", prompt_tokens=200, unit_tokens=120),
    ]
    assert [each.name for each in quickest(cases, 2)] == ["second", "first"]
