"""What came of `vivace eval edits`, as a table and as JSON.

Owns the counting: by effort, and for the tasks that were held out apart. A refused edit is not right.
"""

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

from vivace.agent.edits.find.parts import LONG_LINES
from vivace.eval.edits.changes import lines_changed
from vivace.eval.edits.results import Answer, Results, Way
from vivace.eval.edits.run import EditsPlan
from vivace.eval.edits.tasks import LEFT_OUT, Task

Counts = dict[str, Any]


def summary(plan: EditsPlan, results: Results) -> dict[str, Any]:
    """Return the report for programs. Shares are of the tasks that have an answer, or None without any."""
    return {
        "set": plan.set_name,
        "model": plan.model,
        "tasks": len(plan.tasks),
        "left_out": sorted(LEFT_OUT) if plan.set_name == "editeval" else [],
        "results": str(results.path),
        "efforts": {effort: _effort(plan, results, effort) for effort in plan.efforts},
    }


def _effort(plan: EditsPlan, results: Results, effort: Way) -> Counts:
    """Count one effort: everything, and each part of the set."""
    held_out = [task for task in plan.tasks if task.is_held_out]
    tuned = [task for task in plan.tasks if not task.is_held_out]
    parts = {"tuned": _shares(plan, results, effort, tuned)}
    parts["held_out"] = _shares(plan, results, effort, held_out)
    answers = list(_answers(plan, results, effort, plan.tasks))
    whole = [(task, answer) for task, answer in answers if answer.code is not None]
    seconds = [answer.seconds for _, answer in answers]
    return {
        **_shares(plan, results, effort, plan.tasks),
        "outside_unit_lines": sum(answer.outside_unit_lines for _, answer in answers),
        "seconds_median": rounded(median, seconds),
        "seconds_total": round(sum(seconds), 1),
        "tasks_at_once": max((answer.at_once for _, answer in answers), default=0),
        "tokens": rounded(mean, [answer.output_tokens for _, answer in answers]),
        "prefilled_tokens": rounded(mean, [answer.prefilled_tokens for _, answer in answers]),
        "lines_changed": rounded(mean, [answer.lines_changed for _, answer in whole]),
        "reference_lines_changed": rounded(
            mean, [lines_changed(task.code, task.reference) for task, _ in whole]
        ),
        "long_units": _long_units([answer for _, answer in whole if answer.has_long_unit]),
        **parts,
    }


def _long_units(answers: Sequence[Answer]) -> Counts:
    """Count the edits of units that are too long to be written whole."""
    tokens = sum(answer.output_tokens for answer in answers)
    lines = sum(answer.lines_changed for answer in answers)
    per_line = round(tokens / lines, 1) if lines else None
    return {"edits": len(answers), "tokens_per_changed_line": per_line}


def _shares(plan: EditsPlan, results: Results, effort: Way, tasks: Sequence[Task]) -> Counts:
    answers = [answer for _, answer in _answers(plan, results, effort, tasks)]
    unjudged = sum(results.is_unjudged(answer.key) for answer in answers)
    scores = [results.scores[answer.key] for answer in answers if answer.key in results.scores]
    passed = sum(score.verdict == "passed" for score in scores)
    refused = sum(answer.code is None for answer in answers)
    return {
        "answered": len(answers),
        "unjudged": unjudged,
        "passed": passed,
        "pass_rate": share_of(passed, len(answers)) if not unjudged else None,
        "refused": share_of(refused, len(answers)),
    }


def _answers(
    plan: EditsPlan, results: Results, effort: Way, tasks: Iterable[Task]
) -> Iterable[tuple[Task, Answer]]:
    for task in tasks:
        if answer := results.answers.get((plan.set_name, plan.model, effort, task.name)):
            yield task, answer


def share_of(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def rounded(of: Any, values: Sequence[float]) -> float | None:
    return round(float(of(values)), 2) if values else None


def table(report: dict[str, Any]) -> str:
    """Return the report for people: one line for each effort."""
    columns = ("answered", "right", "held out", "refused", "seconds", "tokens", "lines", "outside")
    lines = [f"{report['set']}, {report['model']}", f"{'':<8}" + "".join(f"{name:>10}" for name in columns)]
    for effort, counts in report["efforts"].items():
        changed = f"{figure(counts['lines_changed'])}/{figure(counts['reference_lines_changed'])}"
        cells = (
            f"{counts['answered']}/{report['tasks']}",
            percent(counts["pass_rate"]),
            percent(counts["held_out"]["pass_rate"]),
            percent(counts["refused"]),
            figure(counts["seconds_median"]),
            figure(counts["tokens"]),
            changed,
            str(counts["outside_unit_lines"]),
        )
        lines.append(f"{effort:<8}" + "".join(f"{cell:>10}" for cell in cells))
    lines += [
        f"Seconds: the median of a task{beside_each_other(report)}. Tokens: generated, a task. "
        "Lines: changed by edit / reference.",
        "Outside: changed lines outside of the units, all tasks together.",
    ]
    for effort, counts in report["efforts"].items():
        if edits := counts["long_units"]["edits"]:
            per_line = figure(counts["long_units"]["tokens_per_changed_line"])
            lines.append(
                f"{effort}: {per_line} tokens written per changed line, in {edits} edits of units over"
                f" {LONG_LINES} lines."
            )
    if report["left_out"]:
        lines.append(f"Left out, since its own reference fails: {', '.join(report['left_out'])}.")
    if waiting := sum(counts["unjudged"] for counts in report["efforts"].values()):
        lines.append(f"{waiting} answers are not judged yet: vivace eval edits --score {report['results']}")
    return "\n".join(lines)


def beside_each_other(report: dict[str, Any]) -> str:
    """Return ", 16 beside each other", or nothing where one task ran at a time."""
    at_once = max((counts["tasks_at_once"] for counts in report["efforts"].values()), default=1)
    return f", {at_once} beside each other" if at_once > 1 else ""


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
