"""`vivace eval requests` when it runs: from the options to a report, whatever ends it.

Owns what is fetched before, and which results file is used. The run itself is that of `vivace eval edits`
(`evaluating`); answers, verdicts and counts are `vivace.eval.requests`'.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.cli.installation.fetching import with_model_here
from vivace.cli.measure.evaluating import Progress, note, results_file, run_plan
from vivace.config import Settings
from vivace.errors import DONE, FAILED, INTERRUPTED, UsageError
from vivace.eval.edits.results import Results
from vivace.eval.edits.run import judge_results
from vivace.eval.edits.scoring import check_sandbox
from vivace.eval.edits.tasks import choose_tasks
from vivace.eval.requests.plan import (
    Kept,
    RequestsPlan,
    fetch_trees,
    prepare_judging,
    read_set,
    request_plans_of,
)
from vivace.eval.requests.proof import prove
from vivace.eval.requests.report import summary, table
from vivace.kept_results import keep_result


@dataclass(frozen=True)
class RequestsOptions:
    efforts: tuple[Effort, ...]
    tasks: Path | None
    only: tuple[str, ...]
    sample: int | None
    is_held_out: bool | None
    data: Path | None
    results: Path | None
    is_fresh: bool
    is_judged: bool
    at_once: int | None
    url: str | None
    token_file: Path | None
    as_json: bool


def evaluate_requests(settings: Settings, options: RequestsOptions) -> int:
    """Answer the requests, judge the answers and report, also when interrupted. Return the exit code."""
    if options.is_judged:
        asyncio.run(check_sandbox())
    if not options.url:
        settings = with_model_here(settings)
    plan = _plan(settings, options)
    if options.is_judged:
        prepare_judging(plan.tasks, _kept(settings, options), note)
    with Results(options.results or results_file(settings, plan)) as results:
        if options.is_fresh:
            results.forget()
        progress = Progress(plan, results)
        try:
            run_plan(settings, options, plan, results, progress)
        except KeyboardInterrupt:
            note(f"Interrupted. The same command goes on from here: {results.path}")
            return _report(settings, [plan], results, options, INTERRUPTED)
        return _report(settings, [plan], results, options, DONE)


def score_requests(settings: Settings, options: RequestsOptions, file: Path) -> int:
    """Judge what is in a results file, which may come from a machine without a sandbox."""
    if not file.is_file():
        raise UsageError(f"{file} is not there.", "Name the results file of a `vivace eval requests`.")
    asyncio.run(check_sandbox())
    kept = _kept(settings, options)
    with Results(file) as results:
        plans = request_plans_of(results, kept, note)
        if not plans:
            raise UsageError(
                f"{file} has no such answers.", "Of repository tasks? Name their folder: --tasks."
            )
        for plan in plans:
            prepare_judging(plan.tasks, kept, note)
            asyncio.run(judge_results(plan, results, Progress(plan, results).tell))
        return _report(settings, plans, results, options, DONE)


def check_requests(settings: Settings, options: RequestsOptions) -> int:
    """Judge the set itself: each reference should pass, and no unchanged tree should."""
    plan, kept = _plan(settings, options), _kept(settings, options)
    prepare_judging(plan.tasks, kept, note)
    found = asyncio.run(prove(plan))
    print(json.dumps({"set": plan.set_name, "requests": len(plan.tasks), **found}, indent=2))
    return FAILED if any(found.values()) else DONE


def _plan(settings: Settings, options: RequestsOptions) -> RequestsPlan:
    kept = _kept(settings, options)
    chosen = choose_tasks(read_set(kept), options.sample, options.is_held_out)
    if options.only:
        chosen = [each for each in chosen if any(word in each.name for word in options.only)]
    if not chosen:
        raise UsageError("There is no such request.", "`--only` takes a part of a name.")
    fetch_trees(chosen, kept, note)
    return RequestsPlan(
        "repository" if options.tasks else "requests",
        settings.model,
        tuple(dict.fromkeys(options.efforts)) or (DEFAULT_EFFORT,),
        tuple(chosen),
        is_judged=options.is_judged,
        environments=kept.environments,
    )


def _kept(settings: Settings, options: RequestsOptions) -> Kept:
    return Kept(options.data or settings.evals_folder, options.tasks)


def _report(
    settings: Settings, plans: Sequence[RequestsPlan], results: Results, options: RequestsOptions, code: int
) -> int:
    for plan in plans:
        report = summary(plan, results)
        keep_result(settings, "eval requests", report)
        print(json.dumps(report, ensure_ascii=False) if options.as_json else table(report), flush=True)
    return code
