"""Requests through the real loop, on a real server with a scripted model: placed, answered, judged."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from tests.eval.edits.test_run import silent
from tests.eval.requests.conftest import ALSO_ASKED, DISCOUNTS, RIGHT, SHOP, make_request
from tests.sandboxes import needs_sandbox
from vivace.client.warm import ServerAddress
from vivace.eval.edits.bundle import bundle
from vivace.eval.edits.results import Answer, Found, Results
from vivace.eval.edits.run import judge_results, run_edits
from vivace.eval.requests.judging import judge_request
from vivace.eval.requests.plan import Kept, RequestsPlan, read_set, request_plans_of
from vivace.eval.requests.report import summary, table
from vivace.eval.requests.requests import Request


@needs_sandbox
async def test_a_request_finds_its_place_and_is_judged(
    address: ServerAddress, request_of_none: Request, model: str, tmp_path: Path
) -> None:
    """No file was named; the edit is that of the reference's place, and does what was asked."""
    plan = RequestsPlan("requests", model, ("low",), (request_of_none,))
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        (answer,) = results.answers.values()
        (score,) = results.scores.values()
        counts = summary(plan, results)["efforts"]["low"]
    assert len(answer.found.units) == 1
    assert (answer.found.outcome, answer.found.is_right_file, answer.found.is_right_unit) == (
        "written",
        True,
        True,
    )
    assert answer.lines_changed == 2
    assert score.verdict == "passed"
    assert (counts["right"], counts["broke"], counts["right_rate"]) == (1, 0, 1.0)


async def test_a_change_of_comments_writes_nothing(
    address: ServerAddress, tmp_path: Path, model: str
) -> None:
    """The loop refuses it, and the answer says so."""
    plan = RequestsPlan(
        "requests", model, ("low",), (make_request(tmp_path, text=ALSO_ASKED),), is_judged=False
    )
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        (answer,) = results.answers.values()
        counts = summary(plan, results)["efforts"]["low"]
    assert (answer.code, answer.found.outcome) == (None, "refused")
    assert "comments" in answer.refusal
    assert (counts["refused"], counts["written"], counts["is_words_alone"]) == (1, 0, 0)


async def test_a_question_is_no_edit(address: ServerAddress, tmp_path: Path, model: str) -> None:
    """As in a conversation, the words decide."""
    request = make_request(tmp_path, text="What does total_price do?")
    plan = RequestsPlan("requests", model, ("low",), (request,), is_judged=False)
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        counts = summary(plan, results)["efforts"]["low"]
    assert (counts["taken_for_a_question"], counts["written"]) == (1, 0)


async def test_a_run_goes_on_where_it_was(address: ServerAddress, tmp_path: Path, model: str) -> None:
    """Cancelled after one request: the other is answered by the next run, the first not again."""
    requests = (make_request(tmp_path), make_request(tmp_path, "shop/fifth", ALSO_ASKED))
    plan = RequestsPlan("requests", model, ("low",), requests, is_judged=False)
    told: list[str] = []

    def stop(answer: Answer, score: object) -> None:
        del score
        told.append(answer.task)
        running.cancel()

    with Results(tmp_path / "r.jsonl") as results:
        running = asyncio.create_task(run_edits(address, plan, results, stop))
        with pytest.raises(asyncio.CancelledError):
            await running
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, lambda answer, _: told.append(answer.task))
    assert told == ["shop/none", "shop/fifth"]


@needs_sandbox
@pytest.mark.parametrize(
    ("shop", "verdict"),
    [
        (SHOP, "failed"),
        (SHOP.replace("item.price", "1 + item.price").replace("sum(", "1 + sum("), "broke"),
        (f"import os\nos._exit(0)\n{SHOP}", "broke"),
        (RIGHT, "passed"),
    ],
)
async def test_an_edit_is_judged_by_what_it_does(request_of_none: Request, shop: str, verdict: str) -> None:
    """Right, wrong, or worse than nothing; a program that leaves early has shown nothing."""
    assert (await judge_request(request_of_none, bundle({"shop.py": shop})))[0] == verdict


@needs_sandbox
async def test_repository_tasks_are_judged_by_their_tests(
    address: ServerAddress, model: str, tasks: Path, tmp_path: Path
) -> None:
    """From the answers of another machine alone: solved, and what would have broken a test."""
    kept = Kept(tmp_path / "evals", tasks)
    plan = RequestsPlan("repository", model, ("low",), tuple(read_set(kept)), is_judged=False)
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, silent)
        broken = DISCOUNTS.replace("price / 10", "price / 9")
        (answer,) = [each for each in results.answers.values() if each.code is None]
        results.add(msgspec.structs.replace(answer, code=bundle({"discounts.py": broken})))
    with Results(tmp_path / "r.jsonl") as results:
        (found,) = request_plans_of(results, kept, print)
        await judge_results(found, results, silent)
        verdicts = {key[3]: score.verdict for key, score in results.scores.items()}
        counts = summary(found, results)["efforts"]["low"]
    assert verdicts == {"shop-none": "passed", "shop-fifth": "broke"}
    assert (counts["right"], counts["broke"], counts["broke_rate"]) == (1, 1, 0.5)


def test_the_table_has_both_halves(request_of_none: Request, tmp_path: Path) -> None:
    """And says what was written that changes no code."""
    plan = RequestsPlan("requests", "m", ("low", "high"), (request_of_none,))
    found = Found("written", is_words_alone=True)
    with Results(tmp_path / "r.jsonl") as results:
        results.add(Answer("requests", "m", "low", "shop/none", bundle({"shop.py": SHOP}), found=found))
        report = json.loads(json.dumps(summary(plan, results)))
    assert report["efforts"]["high"]["answered"] == 0
    shown = table(report)
    assert shown.count("held out") == 2
    assert "low: comments alone 1" in shown
    assert "1 answers are not judged yet" in shown
