"""What came of `vivace eval steers`, as a table and as JSON.

Owns the counting. Cases that wordings were chosen with and cases that were held out are counted apart.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from vivace.eval.steers.cases import Kind
from vivace.eval.steers.run import CaseResult

KINDS: tuple[Kind, ...] = ("language", "topic", "format", "add", "correct", "word")


def summary(model: str, results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the report for programs: counts by kind, by form and by set, and every answer."""
    return {
        "model": model,
        "obeyed": _counts(results),
        "kinds": {kind: _counts(each for each in results if each.kind == kind) for kind in KINDS},
        "forms": {
            form: _counts(each for each in results if each.form == form)
            for form in ("steer", "interrupt", "resend")
        },
        "sets": {
            "tuned": _counts(each for each in results if not each.held_out),
            "held_out": _counts(each for each in results if each.held_out),
        },
        "prefilled_again_tokens": sum(each.prefilled_again for each in results),
        "passed_before": [each.name for each in results if each.passed_before],
        "cases": [msgspec.structs.asdict(each) for each in results],
    }


def _counts(results: Iterable[CaseResult]) -> dict[str, int]:
    chosen = list(results)
    keeping = [each.kept for each in chosen if each.kept is not None]
    return {
        "cases": len(chosen),
        "obeyed": sum(each.obeyed for each in chosen),
        "to_keep": len(keeping),
        "kept": sum(keeping),
    }


def table(report: dict[str, Any]) -> str:
    rows: list[tuple[str, Any]] = [(kind, report["kinds"][kind]) for kind in KINDS]
    rows += [(f"by {form}", counts) for form, counts in report["forms"].items()]
    rows += [("tuned with", report["sets"]["tuned"]), ("held out", report["sets"]["held_out"])]
    rows += [("together", report["obeyed"])]
    lines = [f"{report['model']:<24}{'cases':>7}{'obeyed':>9}{'':>6}{'kept the task':>16}"]
    for name, counts in rows:
        if counts["cases"]:
            share = 100 * counts["obeyed"] / counts["cases"]
            kept = f"{counts['kept']}/{counts['to_keep']}" if counts["to_keep"] else ""
            lines.append(f"{name:<24}{counts['cases']:>7}{counts['obeyed']:>9}{share:>5.0f}%{kept:>16}")
    missed = [each["name"] for each in report["cases"] if not each["obeyed"]]
    lost = [each["name"] for each in report["cases"] if each["kept"] is False]
    lines += [f"Not obeyed: {', '.join(missed) or 'none'}.", f"Task lost: {', '.join(lost) or 'none'}."]
    lines.append(f"Tokens prefilled again: {report['prefilled_again_tokens']}.")
    return "\n".join(lines)
