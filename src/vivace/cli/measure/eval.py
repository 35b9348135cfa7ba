"""`vivace eval`: whether a model obeys in the middle of an answer, and how often its edits are right.

Owns the options. Does not measure: `vivace.eval` does; `cli.measure.evaluating` says what comes of edits, and
`cli.measure.requesting` what comes of requests.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vivace.agent.effort import EFFORTS
from vivace.cli.options import model_option

if TYPE_CHECKING:
    from vivace.agent.effort import Effort
    from vivace.eval.edits.tasks import SetName


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

    from vivace.cli.installation.fetching import with_model_here
    from vivace.client.warm import ensure_server
    from vivace.config import load_settings
    from vivace.errors import DONE, FAILED
    from vivace.eval.steers.cases import read_cases
    from vivace.eval.steers.report import summary, table
    from vivace.eval.steers.run import run_steers
    from vivace.kept_results import keep_result

    settings = with_model_here(load_settings().having(model=model))
    cases = [case for case in read_cases() if kind in (None, case.kind)]
    if not cases:
        raise click.BadParameter(f"There are no cases of kind {kind!r}.", param_hint="--kind")
    address = ensure_server(settings, lambda text: click.echo(text, err=True))
    results = asyncio.run(run_steers(address, settings.model, cases, lambda text: click.echo(text, err=True)))
    report = summary(settings.model, results)
    keep_result(settings, "eval steers", report)
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    is_enough = report["obeyed"]["obeyed"] >= 0.9 * report["obeyed"]["cases"]
    return FAILED if check and not is_enough else DONE


@evaluate.command()
@click.option(
    "--set",
    "set_name",
    type=click.Choice(("humanevalfix", "humanevalfix-doc", "editeval", "several")),
    default="humanevalfix",
    help="Bugs by the function's name; bugs with what it should do; instructions; of several parts.",
)
@click.option("--effort", "efforts", multiple=True, type=click.Choice(EFFORTS), help="One or more.")
@click.option(
    "--bare", "is_bare", is_flag=True, help="The model alone too: one plain prompt, the whole code back."
)
@click.option("--sample", type=click.IntRange(min=1), help="Only this many tasks, the same every time.")
@click.option(
    "--held-out/--no-held-out",
    "is_held_out",
    default=None,
    help="Only the third that is kept aside while the loop is tuned, or only the rest.",
)
@click.option("--data", type=click.Path(path_type=Path), help="The folder of the tasks' files.")
@model_option
@click.option("--url", help="Another Vivace server: http://HOST:PORT.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The token for --url.")
@click.option(
    "--at-once", type=click.IntRange(1, 64), help="Tasks beside each other; 1 on a CPU, 8 on a GPU."
)
@click.option("--results", type=click.Path(path_type=Path), help="The file to go on with, or to begin.")
@click.option("--fresh", "is_fresh", is_flag=True, help="Forget what was answered before.")
@click.option("--no-score", is_flag=True, help="Run no program: judge later, or elsewhere, with --score.")
@click.option("--score", type=click.Path(path_type=Path), help="Only judge the answers in this results file.")
@click.option(
    "--check-set", is_flag=True, help="Only judge the set itself: its references, its unchanged code."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Write right edits over seconds as an SVG.")
@click.option(
    "--instructions",
    type=click.Path(path_type=Path),
    help="Put this file beside the code as AGENTS.md; its results are kept apart.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def edits(
    set_name: "SetName",
    efforts: "tuple[Effort, ...]",
    is_bare: bool,
    sample: int | None,
    is_held_out: bool | None,
    data: Path | None,
    model: str | None,
    url: str | None,
    token_file: Path | None,
    at_once: int | None,
    results: Path | None,
    is_fresh: bool,
    no_score: bool,
    score: Path | None,
    check_set: bool,
    plot: Path | None,
    instructions: Path | None,
    as_json: bool,
) -> int:
    """Give public tasks to the edit loop, and run what it made of them in a sandbox.

    Ctrl-C reports what is done; the same command goes on from there.
    """
    from vivace.cli.measure import evaluating
    from vivace.config import load_settings

    settings = load_settings().having(model=model)
    options = evaluating.EditsOptions(
        set_name=set_name,
        efforts=efforts,
        is_bare=is_bare,
        sample=sample,
        is_held_out=is_held_out,
        data=data,
        results=results,
        is_fresh=is_fresh,
        is_judged=not no_score,
        at_once=at_once,
        url=url,
        token_file=token_file,
        plot=plot,
        as_json=as_json,
        instructions=instructions,
    )
    if score:
        return evaluating.score_edits(settings, options, score)
    if check_set:
        return evaluating.check_set(settings, options)
    return evaluating.evaluate_edits(settings, options)


@evaluate.command()
@click.option("--effort", "efforts", multiple=True, type=click.Choice(EFFORTS), help="One or more.")
@click.option(
    "--tasks",
    type=click.Path(path_type=Path),
    help="Repository tasks instead: a folder with tasks.jsonl and archives/ID.tar.gz.",
)
@click.option("--only", multiple=True, help="Only requests with this in their name, such as semver/.")
@click.option("--sample", type=click.IntRange(min=1), help="Only this many, the same every time.")
@click.option(
    "--held-out/--no-held-out",
    "is_held_out",
    default=None,
    help="Only the half that is kept aside while the loop is tuned, or only the rest.",
)
@click.option("--data", type=click.Path(path_type=Path), help="Where source packages are kept.")
@model_option
@click.option("--url", help="Another Vivace server: http://HOST:PORT.")
@click.option("--token-file", type=click.Path(path_type=Path), help="The token for --url.")
@click.option(
    "--at-once", "--jobs", "at_once", type=click.IntRange(1, 64), help="Requests beside each other."
)
@click.option("--results", type=click.Path(path_type=Path), help="The file to go on with, or to begin.")
@click.option("--fresh", "is_fresh", is_flag=True, help="Forget what was answered before.")
@click.option("--no-score", is_flag=True, help="Run no program: judge later, or elsewhere, with --score.")
@click.option("--score", type=click.Path(path_type=Path), help="Only judge the answers in this results file.")
@click.option(
    "--check-set", is_flag=True, help="Only judge the set itself: its references, its unchanged trees."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def requests(
    efforts: "tuple[Effort, ...]",
    tasks: Path | None,
    only: tuple[str, ...],
    sample: int | None,
    is_held_out: bool | None,
    data: Path | None,
    model: str | None,
    url: str | None,
    token_file: Path | None,
    at_once: int | None,
    results: Path | None,
    is_fresh: bool,
    no_score: bool,
    score: Path | None,
    check_set: bool,
    as_json: bool,
) -> int:
    """Give plain requests about real projects to the edit loop, which has to find the place itself.

    The projects' source packages are fetched with pip. Ctrl-C reports what is done; the same command goes on
    from there.
    """
    from vivace.cli.measure import requesting
    from vivace.config import load_settings

    settings = load_settings().having(model=model)
    options = requesting.RequestsOptions(
        efforts=efforts,
        tasks=tasks,
        only=only,
        sample=sample,
        is_held_out=is_held_out,
        data=data,
        results=results,
        is_fresh=is_fresh,
        is_judged=not no_score,
        at_once=at_once,
        url=url,
        token_file=token_file,
        as_json=as_json,
    )
    if score:
        return requesting.score_requests(settings, options, score)
    if check_set:
        return requesting.check_requests(settings, options)
    return requesting.evaluate_requests(settings, options)
