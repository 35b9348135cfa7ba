"""`vivace bench completions`: how soon an editor has its suggestion, and how often it is the right one.

Owns the options and what is printed. Does not measure: `vivace.bench.completions` does.
"""

import click


@click.command()
@click.option("--model", help="A name from `vivace models`, or a .gguf file.")
@click.option("--files", type=click.IntRange(1, 20), default=20, show_default=True, help="How many files.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--check", is_flag=True, help="Exit with 1 if the limit is missed.")
def completions(model: str | None, files: int, as_json: bool, check: bool) -> int:
    """Measure suggestions in real files: the first one in a file, and one three letters later."""
    import json
    import signal

    from vivace.bench.completions.run import run_completions_bench, table
    from vivace.cli.installation.fetching import fetch_model
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED
    from vivace.kept_results import keep_result

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server goes as with Ctrl-C
    settings = load_settings().having(model=model)
    fetch_model(settings)
    report = run_completions_bench(settings, files)
    keep_result(settings, "bench completions", report)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    return FAILED if check and not all(report["passed"].values()) else DONE
