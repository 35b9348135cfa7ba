"""What came of `vivace eval requests`, as a table and as JSON.

Owns the counting: by effort, and for the half that was held out apart. What was asked back or refused wrote
nothing, and is not right.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from vivace.eval.edits.report import beside_each_other, figure, percent, rounded, share_of
from vivace.eval.edits.results import Answer, Found, Results, Way
from vivace.eval.requests.plan import RequestsPlan

LONG_LINES = 60  # of a unit
Counts = dict[str, Any]


def summary(plan: RequestsPlan, results: Results) -> dict[str, Any]:
    """Return the report for programs. Shares are of the requests that have an answer, or None without any."""
    return {
        "set": plan.set_name,
        "model": plan.model,
        "requests": len(plan.tasks),
        "results": str(results.path),
        "efforts": {effort: _effort(plan, results, effort) for effort in plan.efforts},
    }


def _effort(plan: RequestsPlan, results: Results, effort: Way) -> Counts:
    """Count one effort: everything, and each half."""
    keys = [((plan.set_name, plan.model, effort, task.name), task.is_held_out) for task in plan.tasks]
    answered = [(results.answers[key], is_held_out) for key, is_held_out in keys if key in results.answers]
    seconds = [answer.seconds for answer, _ in answered]
    return {
        **_counts([answer for answer, _ in answered], results),
        "seconds_median": rounded(median, seconds),
        "seconds_total": round(sum(seconds), 1),
        "tasks_at_once": max((answer.at_once for answer, _ in answered), default=0),
        "tokens": rounded(mean, [answer.output_tokens for answer, _ in answered]),
        "prefilled_tokens": rounded(mean, [answer.prefilled_tokens for answer, _ in answered]),
        "tokens_per_line": _tokens_per_line([answer for answer, _ in answered], 0),
        "tokens_per_line_of_long_units": _tokens_per_line([answer for answer, _ in answered], LONG_LINES),
        "tuned": _counts([answer for answer, is_held_out in answered if not is_held_out], results),
        "held_out": _counts([answer for answer, is_held_out in answered if is_held_out], results),
    }


def _counts(answers: Sequence[Answer], results: Results) -> Counts:
    scores = [results.scores[answer.key] for answer in answers if answer.key in results.scores]
    verdicts = Counter(score.verdict for score in scores)
    outcomes = Counter(_found(answer).outcome for answer in answers)
    written = sum(answer.code is not None for answer in answers)
    unjudged = sum(results.is_unjudged(answer.key) for answer in answers)
    right, broke = verdicts["passed"], verdicts["broke"]
    return {
        "answered": len(answers),
        "unjudged": unjudged,
        "right": right,
        "right_rate": share_of(right, len(answers)) if not unjudged else None,
        "wrong": len(scores) - right - broke,
        "broke": broke,
        "broke_rate": share_of(broke, written) if not unjudged else None,
        "written": written,
        "asked": outcomes["asked"],
        "refused": outcomes["refused"],
        "taken_for_a_question": outcomes["question"],
        **{f"{name}_rate": share_of(_many(answers, name), len(answers)) for name in _PLACES},
        **{name: _many(answers, name) for name in _IDLE},
    }


_PLACES = ("is_right_file", "is_right_unit", "is_right_asked")
_IDLE = ("is_words_alone", "is_beside_alone")


def _found(answer: Answer) -> Found:
    return answer.found or Found("refused")


def _many(answers: Sequence[Answer], name: str) -> int:
    return sum(getattr(_found(answer), name) for answer in answers)


def _tokens_per_line(answers: Sequence[Answer], least_lines: int) -> float | None:
    """Return the tokens generated per changed line, in units of more lines than `least_lines`."""
    counted = [each for each in answers if each.lines_changed and _found(each).unit_lines > least_lines]
    return share_of(sum(each.output_tokens for each in counted), sum(each.lines_changed for each in counted))


def table(report: dict[str, Any]) -> str:
    """Return the report for people: three lines for each effort."""
    columns = ("answered", "right", "wrong", "broke", "asked", "refused", "file", "unit", "seconds", "tokens")
    lines = [f"{report['set']}, {report['model']}", f"{'':<16}" + "".join(f"{name:>9}" for name in columns)]
    for effort, counts in report["efforts"].items():
        times = (figure(counts["seconds_median"]), figure(counts["tokens"]))
        lines.append(_line(effort, counts, times))
        lines += [
            _line(f"  {name.replace('_', ' ')}", counts[name], ("", "")) for name in ("tuned", "held_out")
        ]
    lines += [
        f"Seconds: the median of a request{beside_each_other(report)}. Tokens: generated, a request.",
        "File, unit: the loop went where the reference goes. Broke: what worked before does not.",
    ]
    for effort, counts in report["efforts"].items():
        idle = f"comments alone {counts['is_words_alone']}, tests or docs alone {counts['is_beside_alone']}"
        lines.append(f"{effort}: {idle}, taken for a question {counts['taken_for_a_question']}")
    if waiting := sum(counts["unjudged"] for counts in report["efforts"].values()):
        lines.append(
            f"{waiting} answers are not judged yet: vivace eval requests --score {report['results']}"
        )
    return "\n".join(lines)


def _line(name: str, counts: Counts, times: tuple[str, str]) -> str:
    cells = (
        str(counts["answered"]),
        percent(counts["right_rate"]),
        *(str(counts[each]) for each in ("wrong", "broke", "asked", "refused")),
        percent(counts["is_right_file_rate"]),
        percent(counts["is_right_unit_rate"]),
        *times,
    )
    return f"{name:<16}" + "".join(f"{cell:>9}" for cell in cells)
