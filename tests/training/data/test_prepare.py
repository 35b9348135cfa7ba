"""From rows to tokens: prompts behind one prefix, answers that the opening begins, and what was refused."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.training.data.rows import AGAIN, commit, write_rows
from vivace.errors import FileProblem
from vivace.models.families.qwen25 import Qwen25
from vivace.models.tokenizer import ByteTokenizer
from vivace.training.data.decontaminate import Guard
from vivace.training.data.pairs import Pair, write_pair
from vivace.training.data.plan import DataPlan
from vivace.training.data.prepare import Report, make_examples, make_pairs
from vivace.training.examples import Example, Examples, load_examples, save_examples

OTHER = commit(
    "    folder = os.path.dirname(path)",
    "    folder = os.path.abspath(path)",
    subject="Use the whole path here",
)
PLAN = DataPlan(mutations=4, max_tokens=100_000)


def made(folder: Path, plan: DataPlan = PLAN) -> tuple[list[Pair], Report]:
    held_out = OTHER | {"split": "dev", "repo": "held/out"}
    report = Report()
    rows = write_rows(folder, [AGAIN, AGAIN, held_out])
    return list(make_pairs(rows, Guard(), plan, report)), report


def test_prompts_and_answers_are_the_requests(tmp_path: Path) -> None:
    """Prefix, prompt and answer together are the text that the loop and the model write."""
    tokenizer = ByteTokenizer()
    pairs, report = made(tmp_path)
    found = make_examples(pairs, tokenizer, Qwen25(tokenizer), PLAN, report)
    by_name = {row.name: row for each in found.values() for row in each.rows}
    for pair in pairs:
        row = by_name[pair.name]
        request, answer = write_pair(pair)
        prompt = bytes(token for token in (*found["train"].prefix, *row.prompt) if token < 256).decode()
        assert prompt.endswith(f"assistant\n{request.messages[-1]['content']}")
        assert bytes(row.answer[:-1]).decode() == answer
        assert row.answer[-1] == tokenizer.control("<|im_end|>")
        assert prompt.endswith(request.opening)


def test_splits_are_whole_projects(tmp_path: Path) -> None:
    """What is measured comes from projects that nothing is trained on, mutations included."""
    tokenizer = ByteTokenizer()
    pairs, report = made(tmp_path)
    found = make_examples(pairs, tokenizer, Qwen25(tokenizer), PLAN, report)
    assert {row.group for row in found["train"].rows} == {"some/project"}
    assert {row.group for row in found["dev"].rows} == {"held/out"}
    assert found["train"].prefix == found["dev"].prefix != ()


def test_repeats_are_dropped_and_counted(tmp_path: Path) -> None:
    """The same commit twice is one pair; the report says so."""
    pairs, report = made(tmp_path, DataPlan(mutations=0))
    assert len(pairs) == 2
    assert report.refused["seen before"] == 1


def test_mutations_have_one_bug_and_the_authors_answer(tmp_path: Path) -> None:
    """The unit differs from the answer in one line, and the answer is what the file had."""
    pairs, _ = made(tmp_path)
    broken = [pair for pair in pairs if pair.kind == "mutation"]
    assert broken
    for pair in broken:
        old, new = pair.before.splitlines(), pair.after.splitlines()
        same = set(old) & set(new)
        assert len(set(old) - same) <= 1
        assert len(set(new) - same) == 1
        assert pair.after in AGAIN["files"][0]["before"]
        assert pair.unit.rsplit(".")[-1] in pair.instruction


def test_the_same_seed_breaks_the_same(tmp_path: Path) -> None:
    """Mutations depend on the seed alone."""
    assert made(tmp_path)[0] == made(tmp_path)[0]


def test_examples_come_back_as_they_were(tmp_path: Path) -> None:
    """Tokens, names and kinds; empty answers too."""
    rows = (Example((5, 6), (7,), "a", "g", "commit"), Example((8,), (), "b", "g", "humanevalfix"))
    save_examples(Examples((1, 2, 3), rows), tmp_path / "e.pt")
    assert load_examples(tmp_path / "e.pt") == Examples((1, 2, 3), rows)


@pytest.mark.parametrize("raw", [b"", b"not a file of torch", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_refused(tmp_path: Path, raw: bytes) -> None:
    """It says how to make it again, and nothing in it is run."""
    (tmp_path / "e.pt").write_bytes(raw)
    with pytest.raises(FileProblem, match="cannot be read") as error:
        load_examples(tmp_path / "e.pt")
    assert "prepare" in error.value.hint
