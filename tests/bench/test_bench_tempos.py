"""`vivace bench tempos`: a realtime turn beside background turns, on a real engine process."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vivace.bench.tempos import run as tempos_run
from vivace.bench.tempos.measure import Effort
from vivace.bench.tempos.report import judge, table
from vivace.bench.tempos.run import run_tempos_bench, sliced_texts
from vivace.cli.measure.bench import bench
from vivace.config import Settings

SMALLEST = Effort(rounds=1, tokens=24, reading_tokens=2000, seconds=(1, 1))


@pytest.fixture(scope="module")
def measured(shallow: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One round on two layers of a model."""
    folder = tmp_path_factory.mktemp("tempos")
    settings = Settings(folder / "cache", folder / "state", model=str(shallow), threads=1, device="cpu")
    return run_tempos_bench(settings, SMALLEST)


def test_both_sides_are_measured_and_judged(measured: dict[str, Any]) -> None:
    """The report has both ratios with their limits, and background turns went on meanwhile."""
    report = json.loads(json.dumps(measured))
    assert set(report["passed"]) == set(report["thresholds"]) == set(judge(report))
    assert report["tempos"]["background_turns"] == 4
    assert report["tempos"]["alone"]["tokens"] == report["tempos"]["beside"]["tokens"] == 24
    assert report["device"] == "cpu"


def test_the_table_says_which_limit_is_missed(measured: dict[str, Any]) -> None:
    """A ratio above its limit is marked, and named below the table."""
    tempos = measured["tempos"] | {"token_ratio": 1.3, "first_token_ratio": 1.0}
    shown = table(measured | {"tempos": tempos})
    assert "1.30  ≤ 1.1  NO" in shown
    assert "1.00  ≤ 1.1  yes" in shown
    assert shown.endswith("Missed: tempos.token_ratio.")


def test_check_fails_where_a_limit_is_missed(
    measured: dict[str, Any], shallow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--check` makes the exit code 1, and `--json` prints the same report."""
    missed = measured | {"passed": {"tempos.token_ratio": False}}
    monkeypatch.setattr(tempos_run, "run_tempos_bench", lambda *_: missed)
    options = ["tempos", "--json", "--check", "--model", str(shallow)]
    done = CliRunner().invoke(bench, options, standalone_mode=False)
    assert done.return_value == 1
    assert json.loads(done.output) == missed


def test_pieces_of_a_text_begin_at_different_places() -> None:
    """Without a tokenizer prompts are cut from one text, each as long as asked."""
    texts = sliced_texts(list(range(5000)))
    pieces = [texts.read(3000) for _ in range(3)] + [texts.ask()]
    assert [len(piece) for piece in pieces[:3]] == [3000] * 3
    assert len({piece[0] for piece in pieces}) == 4
