"""`vivace bench wire`: what the way between a client and the engine costs, on loopback.

Owns the options and what is printed. Does not measure: `vivace.bench.wire` does.
"""

import click


@click.command()
@click.option(
    "--model", help="The real model for the first token: a name from `vivace models`, or a .gguf file."
)
@click.option("--quick", is_flag=True, help="Fewer rounds, same figures: under two minutes on two cores.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--check", is_flag=True, help="Exit with 1 if any limit is missed.")
def wire(model: str | None, quick: bool, as_json: bool, check: bool) -> int:
    """Compare one socket that stays open with a connection for each request, against the same engine."""
    import json
    import signal

    from vivace.bench.wire.effort import FULL, QUICK
    from vivace.bench.wire.report import table
    from vivace.bench.wire.run import SMALL_MODEL, run_wire_bench
    from vivace.cli.installation.fetching import fetch_model
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED
    from vivace.kept_results import keep_result

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server and its folder go as with Ctrl-C
    settings = load_settings().having(model=model or SMALL_MODEL)
    fetch_model(settings)
    report = run_wire_bench(settings, QUICK if quick else FULL)
    keep_result(settings, "bench wire", report)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    return FAILED if check and not all(report["passed"].values()) else DONE
