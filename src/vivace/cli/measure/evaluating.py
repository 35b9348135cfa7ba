"""`vivace eval edits` when it runs: from the options to a report, whatever ends it.

Owns which server and which results file are used, what is said meanwhile, and that an interrupted run still
reports. Does not answer, judge or count: `vivace.eval.edits` does.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.agent.loop.opening import can_call_tools
from vivace.agent.memory.recall import LARGE_CHARS, SMALL_CHARS
from vivace.cli.installation.fetching import with_model_here
from vivace.client.responses import ResponsesClient
from vivace.client.socket import Address
from vivace.client.warm import ensure_server, read_status
from vivace.config import Settings
from vivace.errors import DONE, FAILED, INTERRUPTED, ServerGone, UsageError
from vivace.eval.edits.answering import Rules
from vivace.eval.edits.plot import draw
from vivace.eval.edits.report import summary, table
from vivace.eval.edits.results import BARE, Answer, Results, Score, Way
from vivace.eval.edits.run import EditsPlan, Plan, judge_results, judge_set, plans_of, run_edits
from vivace.eval.edits.scoring import check_sandbox
from vivace.eval.edits.tasks import Named, SetName, choose_tasks, read_tasks
from vivace.kept_results import keep_result

AT_ONCE = {
    "cpu": 1,
    "cuda": 8,
    "vulkan": 4,
    "metal": 4,
}  # tasks beside each other: more than one would make each slower on a CPU
AT_ONCE_ELSEWHERE = 4


T = TypeVar("T", bound=Named)


class ServerOptions(Protocol):
    """Which server answers, and how many tasks run beside each other."""

    @property
    def url(self) -> str | None: ...

    @property
    def token_file(self) -> Path | None: ...

    @property
    def at_once(self) -> int | None: ...


@dataclass(frozen=True)
class EditsOptions:
    set_name: SetName
    efforts: tuple[Effort, ...]
    is_bare: bool
    sample: int | None
    is_held_out: bool | None
    data: Path | None
    results: Path | None
    is_fresh: bool
    is_judged: bool
    at_once: int | None
    url: str | None
    token_file: Path | None
    plot: Path | None
    as_json: bool
    instructions: Path | None = None


@dataclass(frozen=True)
class RemoteServer:
    """A server that somebody else runs."""

    socket_url: str
    token: str


def evaluate_edits(settings: Settings, options: EditsOptions) -> int:
    """Answer the tasks, judge the answers and report, also when interrupted. Return the exit code."""
    efforts = _efforts(options)
    tasks = read_tasks(options.set_name, options.data or settings.evals_folder)
    chosen = tuple(choose_tasks(tasks, options.sample, options.is_held_out))
    rules_text = _read_rules(options.instructions) if options.instructions else ""
    if options.is_judged:
        asyncio.run(check_sandbox())
    if not options.url:
        settings = with_model_here(settings)
    rules = _rules(settings, options.instructions, rules_text) if options.instructions else None
    plan = EditsPlan(
        options.set_name, settings.model, efforts, chosen, is_judged=options.is_judged, rules=rules
    )
    with Results(options.results or results_file(settings, plan, rules)) as results:
        if options.is_fresh:
            results.forget()
        progress = Progress(plan, results)
        try:
            run_plan(settings, options, plan, results, progress)
        except KeyboardInterrupt:
            note(f"Interrupted. The same command goes on from here: {results.path}")
            return _report(settings, [plan], results, options, INTERRUPTED)
        return _report(settings, [plan], results, options, DONE)


def score_edits(settings: Settings, options: EditsOptions, file: Path) -> int:
    """Judge what is in a results file, which may come from a machine without a sandbox."""
    if not file.is_file():
        raise UsageError(f"{file} is not there.", "Name the results file of an earlier `vivace eval edits`.")
    with Results(file) as results:
        plans = list(plans_of(results, options.data or settings.evals_folder))
        for plan in plans:
            asyncio.run(judge_results(plan, results, Progress(plan, results).tell))
        return _report(settings, plans, results, options, DONE)


def check_set(settings: Settings, options: EditsOptions) -> int:
    """Judge the set itself: its references should pass, its unchanged code should not."""
    tasks = read_tasks(options.set_name, options.data or settings.evals_folder)
    found = asyncio.run(judge_set(choose_tasks(tasks, options.sample, options.is_held_out)))
    print(json.dumps({"set": options.set_name, "tasks": len(tasks), **found}, indent=2))
    return FAILED if found["references_that_fail"] else DONE


class Progress:
    """A line on stderr for every task that is finished."""

    def __init__(self, plan: Plan[T], results: Results) -> None:
        self._results = results
        self._keys = [key for key, _ in plan.keys]
        self._began_s, self._before = time.monotonic(), self._answered()
        if self._before:
            note(f"{self._before} of {len(self._keys)} were answered before: {results.path}")

    def tell(self, answer: Answer, score: Score | None) -> None:
        came = _came(answer, score)
        answered = self._answered()
        line = f"[{answered}/{len(self._keys)}] {answer.effort} {answer.task}: {came}, {answer.seconds:.1f} s"
        note(line + self._time_left(answered))

    def _answered(self) -> int:
        return sum(key in self._results.answers for key in self._keys)

    def _time_left(self, answered: int) -> str:
        if answered == len(self._keys) or answered == self._before:
            return ""
        pace_s = (time.monotonic() - self._began_s) / (answered - self._before)
        return f"; about {max(1, round(pace_s * (len(self._keys) - answered) / 60))} min left"


def _came(answer: Answer, score: Score | None) -> str:
    if answer.code is None:
        return answer.found.outcome if answer.found else "refused"
    return score.verdict if score else "answered"


def run_plan(
    settings: Settings, options: ServerOptions, plan: Plan[T], results: Results, progress: Progress
) -> None:
    """Run to the end. If the server goes away after some answers, go on with a new one."""
    while True:
        before = len(results.answers)
        try:
            return asyncio.run(_connected(settings, options, plan, results, progress))
        except ServerGone:
            if options.url or len(results.answers) == before:
                raise
            note("The server went away; going on with a new one.")


async def _connected(
    settings: Settings, options: ServerOptions, plan: Plan[T], results: Results, progress: Progress
) -> None:
    if all(key in results.answers for key, _ in plan.keys):  # no server is needed
        if plan.is_judged:
            await judge_results(plan, results, progress.tell)
        return
    address = _remote(settings, options) if options.url else ensure_server(settings, note)
    async with ResponsesClient(address) as client:  # the model is loaded before any clock runs
        await client.prefill({"model": plan.model, "input": "Hello.", "store": False})
    at_once = options.at_once or (AT_ONCE_ELSEWHERE if options.url else _fitting(settings))
    await run_edits(address, replace(plan, at_once=at_once), results, progress.tell)


def _fitting(settings: Settings) -> int:
    status = read_status(settings)
    return AT_ONCE.get(status.engine.device, 1) if status else 1


def _remote(settings: Settings, options: ServerOptions) -> Address:
    """Return the server that --url names. Its token is in a file: command lines can be read by others."""
    assert options.url
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.netloc:
        raise UsageError(f"{options.url!r} is no server's URL.", "Write http://HOST:PORT.")
    scheme = "wss" if parts.scheme in ("https", "wss") else "ws"
    file = options.token_file or settings.token_file
    try:
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The token file {file} cannot be read: {error}.", "Name it: --token-file."
        ) from error
    return RemoteServer(f"{scheme}://{parts.netloc}/v1/responses", token)


def _read_rules(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.", "Name a text: --instructions FILE.") from error


def _rules(settings: Settings, file: Path, text: str) -> Rules:
    """Return an instruction file as the loop would read it beside the code."""
    is_large = can_call_tools(settings, settings.model)
    return Rules(file.stem, text, LARGE_CHARS if is_large else SMALL_CHARS)


def _efforts(options: EditsOptions) -> tuple[Way, ...]:
    efforts = tuple(dict.fromkeys(options.efforts)) or (() if options.is_bare else (DEFAULT_EFFORT,))
    return ((BARE,) if options.is_bare else ()) + efforts


def results_file(settings: Settings, plan: Plan[T], rules: Rules | None = None) -> Path:
    """Return the file that a later run of the same set and model goes on with."""
    model = re.sub(r"[^\w.-]+", "-", Path(plan.model).name)
    beside = f"-with-{rules.name}" if rules else ""
    return settings.state_dir / "evals" / f"{plan.set_name}-{model}{beside}.jsonl"


def _report(
    settings: Settings, plans: Sequence[EditsPlan], results: Results, options: EditsOptions, code: int
) -> int:
    """Print a table, or a line of JSON, for each set, and draw all of them into one picture."""
    reports = [
        summary(plan, results) | ({"instructions": plan.rules.name} if plan.rules else {}) for plan in plans
    ]
    for report in reports:
        keep_result(settings, "eval edits", report)
        print(json.dumps(report, ensure_ascii=False) if options.as_json else table(report), flush=True)
    if options.plot:
        draw(reports, options.plot)
    return code


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
