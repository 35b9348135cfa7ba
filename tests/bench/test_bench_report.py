"""How figures are worked out, judged and shown."""

import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vivace.bench.engine.measures.typed_ahead import TYPO, typed_prefixes
from vivace.bench.engine.plot import draw
from vivace.bench.engine.report import LINES, measured, table
from vivace.bench.figures import median, percentile, ratio, rounded
from vivace.bench.limits import Limit, judge, limits_of
from vivace.errors import WriteProblem


def test_medians_and_percentiles() -> None:
    """The median is the middle; a percentile is a value that was measured, by nearest rank."""
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert percentile([float(n) for n in range(1, 21)], 0.95) == 19.0
    assert percentile([float(n) for n in range(1, 22)], 0.95) == 20.0
    assert percentile([5.0], 0.95) == 5.0


def test_a_ratio_to_nothing_is_infinite_and_becomes_null() -> None:
    """JSON has no infinity; other floats keep four digits, whole numbers and flags stay as they are."""
    assert math.isinf(ratio(1.0, 0.0))
    assert rounded({"a": [1.23456, math.inf], "b": 123456, "c": True}) == {
        "a": [1.235, None],
        "b": 123456,
        "c": True,
    }


@pytest.mark.parametrize(
    ("sign", "below", "at", "above"),
    [("≥", False, True, True), ("≤", True, True, False), ("=", False, True, False)],
)
def test_a_limit_is_met_at_its_value(sign: str, below: bool, at: bool, above: bool) -> None:
    """At least, at most and exactly all hold at the value itself."""
    assert [Limit(sign, 2.0).is_met_by(figure) for figure in (1.9, 2.0, 2.1)] == [below, at, above]


def test_two_limits_are_figures_of_the_run(report: dict[str, Any]) -> None:
    """A warm turn prefills exactly what is new, a steer at most two tokens more."""
    limits = limits_of(report)
    assert str(limits["warm_turn.prefilled_tokens"]) == "= 25"
    assert str(limits["steer.prefilled_tokens"]) == "≤ 28"
    report["warm_turn"]["prefilled_tokens"] = 24
    assert not judge(report)["warm_turn.prefilled_tokens"]


def test_with_the_downloaded_weights_a_first_token_may_take_as_long(report: dict[str, Any]) -> None:
    """It must be sooner only where weights were chosen that suit the CPU better."""
    assert limits_of(report)["peer.first_token_ratio"].value == 1.0
    report["weights"]["chosen"] = report["weights"]["downloaded"]
    assert limits_of(report)["peer.first_token_ratio"].value > 1.0


def test_the_table_has_a_row_for_every_limit(report: dict[str, Any]) -> None:
    """Both sides, the ratio, the limit and whether it is met; what was missed is named at the end."""
    assert {line.key for line in LINES} == set(limits_of(report))
    shown = table(report)
    row = next(line for line in shown.splitlines() if line.startswith("decode without drafts"))
    assert row.split()[5:] == [
        "12.4",
        "tok/s",
        "12.5",
        "tok/s",
        "plain",
        "llama.cpp",
        "0.99",
        "≥",
        "0.97",
        "yes",
    ]
    assert shown.endswith("Missed: background.realtime_slowdown.")
    assert "12 edits" in shown


def test_a_busy_machine_is_said(report: dict[str, Any]) -> None:
    """Figures from beside other programs come with a warning."""
    assert "busy" not in table(report)
    report["machine"]["load_at_start"] = 2.5
    assert "busy (load 2.5)" in table(report)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (170.4, "ms", "170 ms"),
        (17000.0, "ms", "17.00 s"),
        (12.44, "tok/s", "12.4 tok/s"),
        (25.0, "tokens", "25 tokens"),
        (6.1, "", "6.10"),
    ],
)
def test_measurements_are_readable(value: float, unit: str, shown: str) -> None:
    """Three digits or so, seconds where milliseconds would be many."""
    assert measured({"a": value}, "a", unit) == shown


def test_the_plot_is_a_png(report: dict[str, Any], tmp_path: Path) -> None:
    """A picture that can be opened, with something drawn on it."""
    file = tmp_path / "plot.png"
    draw(report, file)
    with Image.open(file) as image:
        assert image.format == "PNG"
        assert image.width > 1000
        assert len(image.getcolors(1 << 24) or []) > 5


def test_a_plot_that_cannot_be_written_is_an_error(report: dict[str, Any], tmp_path: Path) -> None:
    """One sentence and what to do, no traceback."""
    with pytest.raises(WriteProblem, match="cannot be written"):
        draw(report, tmp_path / "missing" / "plot.png")


def test_typing_grows_towards_the_text_with_slips_at_its_end() -> None:
    """Every beat shows more; a slip is put right by the next one; the last letters come with Enter."""
    text = "the quick brown fox jumps over the lazy dog"
    drafts = typed_prefixes(text, 9)
    assert len(drafts) == 8
    slips = [draft for draft in drafts if draft.endswith(TYPO)]
    assert len(slips) == 2
    assert all(text.startswith(draft.removesuffix(TYPO)) for draft in drafts)
    assert [len(draft) for draft in drafts] == sorted(len(draft) for draft in drafts)
    assert len(drafts[-1]) < len(text)
