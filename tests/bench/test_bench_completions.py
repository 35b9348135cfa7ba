"""`vivace bench completions`: lines of real files, a report with every figure."""

from vivace.bench.completions.cuts import cuts
from vivace.bench.completions.run import run_completions_bench, table
from vivace.config import Settings


def test_cuts_are_pieces_of_real_files() -> None:
    """Prefix, rest and suffix are a file again; the same seed takes the same lines."""
    taken = cuts(20, 1)
    assert taken == cuts(20, 1)
    assert len({cut.file for cut in taken}) == 20
    for cut in taken:
        assert "\n" not in cut.rest
        assert cut.rest.strip()
        assert cut.suffix.startswith("\n")
        typed = cut.typed(3)
        assert typed.prefix + typed.rest == cut.prefix + cut.rest


def test_the_report_has_every_figure(settings: Settings) -> None:
    """A run against a real server, with a model that says the same everywhere."""
    script = settings.cache_dir / "script.json"
    script.parent.mkdir(parents=True)
    script.write_text('{"replies": {"": "pass"}, "context_tokens": 20000}')
    report = run_completions_bench(settings.having(model=f"scripted:{script}"), files=2)
    found = report["completions"]
    assert found["asked"] == 2
    assert found["warm"]["new_tokens"] < found["cold"]["new_tokens"]
    assert "2 lines came back exactly" in table(report)
