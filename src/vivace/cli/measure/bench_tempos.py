"""`vivace bench tempos`: what a realtime turn loses to four background turns on the same engine.

Owns the options and what is printed. Does not measure: `vivace.bench.tempos` does.
"""

import click


@click.command()
@click.option("--model", help="A name from `vivace models`, or a .gguf file.")
@click.option("--quick", is_flag=True, help="Fewer rounds, same figures: about a minute on two cores.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--check", is_flag=True, help="Exit with 1 if any limit is missed.")
def tempos(model: str | None, quick: bool, as_json: bool, check: bool) -> int:
    """Compare a realtime turn beside four background turns with one alone, on one engine."""
    import json
    import signal

    from vivace.bench.tempos.measure import FULL, QUICK
    from vivace.bench.tempos.report import table
    from vivace.bench.tempos.run import run_tempos_bench
    from vivace.cli.installation.fetching import fetch_model
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED
    from vivace.kept_results import keep_result

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the engine goes as with Ctrl-C
    settings = load_settings().having(model=model)
    fetch_model(settings)
    report = run_tempos_bench(settings, QUICK if quick else FULL)
    keep_result(settings, "bench tempos", report)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    return FAILED if check and not all(report["passed"].values()) else DONE
