"""Tasks through the real loop, on a real server with a scripted model: answered, judged, counted."""

import asyncio
import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from tests.sandboxes import needs_sandbox
from vivace.client.warm import ServerAddress
from vivace.errors import RequestRefused
from vivace.eval.edits.plot import svg
from vivace.eval.edits.report import summary, table
from vivace.eval.edits.results import BARE, Answer, Results, Score, Way
from vivace.eval.edits.run import EditsPlan, judge_results, plans_of, run_edits
from vivace.eval.edits.tasks import read_tasks


def silent(answer: Answer, score: Score | None) -> None:
    del answer, score


def plan_of(data: Path, model: str, *efforts: Way, at_once: int = 1, is_judged: bool = True) -> EditsPlan:
    tasks = tuple(read_tasks("humanevalfix", data))
    return EditsPlan("humanevalfix", model, efforts, tasks, at_once, is_judged)


@needs_sandbox
@pytest.mark.parametrize("at_once", [1, 3])
async def test_every_task_is_answered_judged_and_counted(
    address: ServerAddress, data: Path, model: str, tmp_path: Path, at_once: int
) -> None:
    """One right, one wrong, one refused since nothing was changed; no line outside of a unit."""
    plan = plan_of(data, model, "low", at_once=at_once)
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        counts = summary(plan, results)["efforts"]["low"]
        verdicts = {key[3]: score.verdict for key, score in results.scores.items()}
    assert verdicts == {"Own/add": "passed", "Own/mul": "failed"}
    assert (counts["answered"], counts["passed"], counts["unjudged"]) == (3, 1, 0)
    assert (counts["pass_rate"], counts["refused"]) == (0.3333, 0.3333)
    assert counts["outside_unit_lines"] == 0
    assert counts["seconds_median"] > 0
    assert counts["tokens"] > 10
    assert (counts["lines_changed"], counts["reference_lines_changed"]) == (2, 2)
    assert counts["tuned"]["answered"] + counts["held_out"]["answered"] == 3
    assert counts["tasks_at_once"] == at_once


@needs_sandbox
async def test_the_model_alone_is_compared(
    address: ServerAddress, data: Path, model: str, tmp_path: Path
) -> None:
    """One plain prompt; the first piece of code in the answer is the file."""
    plan = plan_of(data, model, BARE)
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        counts = summary(plan, results)["efforts"][BARE]
        codes = {answer.code for answer in results.answers.values()}
    assert codes == {"def add(a, b):\n    return a + b\n"}
    assert (counts["passed"], counts["refused"]) == (1, 0.0)


async def test_a_run_goes_on_where_it_was(
    address: ServerAddress, data: Path, model: str, tmp_path: Path
) -> None:
    """Cancelled after one task, started again: the other two are answered, the first is not asked again."""
    plan = plan_of(data, model, "low", is_judged=False)
    told: list[str] = []

    def stop(answer: Answer, score: Score | None) -> None:
        del score
        told.append(answer.task)
        running.cancel()

    with Results(tmp_path / "r.jsonl") as results:
        running = asyncio.create_task(run_edits(address, plan, results, stop))
        with pytest.raises(asyncio.CancelledError):
            await running
        partial = summary(plan, results)["efforts"]["low"]
    assert told == ["Own/add"]
    assert (partial["answered"], partial["pass_rate"]) == (1, None)
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, lambda answer, _: told.append(answer.task))
    assert told == ["Own/add", "Own/mul", "Own/sub"]


@needs_sandbox
async def test_answers_can_be_judged_later(
    address: ServerAddress, data: Path, model: str, tmp_path: Path
) -> None:
    """The results file and the tasks are enough; nothing is judged twice."""
    plan = plan_of(data, model, "low", is_judged=False)
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        assert not results.scores
        assert "not judged yet" in table(summary(plan, results))
    with Results(tmp_path / "r.jsonl") as results:
        (found,) = plans_of(results, data)
        await judge_results(found, results, silent)
        counts = summary(found, results)["efforts"]["low"]
        assert (counts["passed"], counts["unjudged"]) == (1, 0)
        told: list[str] = []
        await judge_results(found, results, lambda answer, _: told.append(answer.task))
        assert not told


async def test_a_model_that_is_not_there_ends_the_run(
    address: ServerAddress, data: Path, tmp_path: Path
) -> None:
    """An error of the server is no answer: the tasks are still to be done."""
    plan = plan_of(data, "no-such-model", "low", at_once=2, is_judged=False)
    with Results(tmp_path / "r.jsonl") as results:
        with pytest.raises(RequestRefused):
            await run_edits(address, plan, results, silent)
        assert not results.answers


def made_results(data: Path, path: Path) -> tuple[EditsPlan, Results]:
    """Answers at two efforts and of the model alone, as if they had been given."""
    plan = plan_of(data, "m", BARE, "low", "high")
    results = Results(path)
    for (set_name, model, effort, name), task in plan.keys:
        seconds = {"bare": 0.4, "low": 1.0, "high": 30.0}[effort]
        results.add(Answer(set_name, model, effort, name, task.reference, seconds=seconds, lines_changed=2))
        is_right = effort == "high" or name == "Own/add"
        results.add(Score(set_name, model, effort, name, "passed" if is_right else "failed"))
    return plan, results


def test_the_table_and_the_json_have_every_effort(data: Path, tmp_path: Path) -> None:
    """In the order that was asked for."""
    plan, results = made_results(data, tmp_path / "r.jsonl")
    with results:
        report = json.loads(json.dumps(summary(plan, results)))
    assert list(report["efforts"]) == ["bare", "low", "high"]
    assert report["efforts"]["high"]["pass_rate"] == 1.0
    lines = table(report).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["bare", "low", "high"]
    assert lines[4].split()[1:3] == ["3/3", "100.0%"]


def test_the_plot_rises_with_the_score_and_goes_right_with_the_time(data: Path, tmp_path: Path) -> None:
    """It is an SVG with a dot for each effort, whatever has been measured."""
    plan, results = made_results(data, tmp_path / "r.jsonl")
    with results:
        report = summary(plan, results)
    root = ElementTree.fromstring(svg([report]))
    name = "{http://www.w3.org/2000/svg}"
    (line,) = root.iter(f"{name}polyline")
    (low_x, low_y), (high_x, high_y) = [tuple(map(float, at.split(","))) for at in line.get("points").split()]
    assert high_x > low_x
    assert high_y < low_y
    dots = [dot for dot in root.iter(f"{name}circle") if dot.get("r") == "5"]
    assert len(dots) == 2
    assert "beside each other" not in svg([report])
    report["efforts"]["low"]["tasks_at_once"] = 16
    assert "16 beside each other" in svg([report])
    report["efforts"] = {}
    assert "Nothing has been judged" in svg([report])


def test_tokens_per_changed_line_are_told_for_long_units(data: Path, tmp_path: Path) -> None:
    """All tokens of the edits of long units over all lines that these changed; others do not count."""
    plan = plan_of(data, "m", "low")
    with Results(tmp_path / "r.jsonl") as results:
        for (set_name, model, effort, name), task in plan.keys:
            answer = Answer(set_name, model, effort, name, task.reference, output_tokens=120, lines_changed=4)
            long = {"Own/add": 4, "Own/mul": 8}.get(name)
            if long:
                answer = msgspec.structs.replace(answer, has_long_unit=True, lines_changed=long)
            results.add(answer)
        report = summary(plan, results)
    assert report["efforts"]["low"]["long_units"] == {"edits": 2, "tokens_per_changed_line": 20.0}
    assert "low: 20.0 tokens written per changed line, in 2 edits of units over 60 lines." in table(report)
