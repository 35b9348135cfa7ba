"""`vivace eval steers`: whether the model does as it is told in the middle of an answer.

Owns the options and what is printed. Does not measure: `vivace.eval` does.
"""

import click


@click.group(name="eval")
def evaluate() -> None:
    """Measure on this machine how well a model does."""


@evaluate.command()
@click.option("--model", help="A name from `vivace models`, or a .gguf file.")
@click.option("--json", "as_json", is_flag=True, help="For programs, with every answer.")
@click.option("--kind", help="Only these cases: language, topic, format, add, correct or word.")
@click.option("--check", is_flag=True, help="Exit with 1 if fewer than 90% of the steers are obeyed.")
def steers(model: str | None, as_json: bool, kind: str | None, check: bool) -> int:
    """Interrupt answers in their middle, and count how often the model does as it is told."""
    import asyncio
    import json

    from vivace.cli.connection import with_model_here
    from vivace.client.warm import ensure_server
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED
    from vivace.eval.steers.cases import read_cases
    from vivace.eval.steers.report import summary, table
    from vivace.eval.steers.run import run_steers

    settings = with_model_here(load_settings().having(model=model))
    cases = [case for case in read_cases() if kind in (None, case.kind)]
    if not cases:
        raise click.BadParameter(f"There are no cases of kind {kind!r}.", param_hint="--kind")
    address = ensure_server(settings, lambda text: click.echo(text, err=True))
    results = asyncio.run(run_steers(address, settings.model, cases, lambda text: click.echo(text, err=True)))
    report = summary(settings.model, results)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    is_enough = report["obeyed"]["obeyed"] >= 0.9 * report["obeyed"]["cases"]
    return FAILED if check and not is_enough else DONE
