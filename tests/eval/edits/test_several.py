"""The set of our own: edits of several parts, in one or two files."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.sandboxes import needs_sandbox
from vivace.client.warm import ServerAddress
from vivace.eval.edits.bundle import bundle, unbundle
from vivace.eval.edits.report import summary
from vivace.eval.edits.results import Answer, Results, Score
from vivace.eval.edits.run import EditsPlan, judge_set, run_edits
from vivace.eval.edits.tasks import read_tasks

NAMES = st.from_regex(r"[a-z]{1,8}\.(py|js|go)", fullmatch=True)
TEXTS = st.lists(st.sampled_from(["def f():", "", "====", "==== x", "x ====", "\t}"])).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@given(st.dictionaries(NAMES, TEXTS, max_size=3))
def test_a_bundle_gives_its_files_back(files: dict[str, str]) -> None:
    """Several files in one text are the same files afterwards."""
    assert unbundle(bundle(files)) == files


def test_every_task_touches_several_places() -> None:
    """The tasks have names of their own, and none asks for less than two changes."""
    tasks = read_tasks("several", Path("nowhere"))
    assert len({task.name for task in tasks}) == len(tasks) == 25
    for task in tasks:
        assert task.code != task.reference
        assert 1 <= len(task.files) <= 2


@needs_sandbox
async def test_references_pass_and_unchanged_code_does_not() -> None:
    """A few tasks, one of them with two files: their tests tell right from wrong."""
    tasks = read_tasks("several", Path("nowhere"))
    chosen = [task for task in tasks if task.name.endswith(("two-files", "go-refuse", "status"))]
    assert len(chosen) == 4
    found = await judge_set(chosen)
    assert found == {"references_that_fail": [], "unchanged_that_pass": []}


@needs_sandbox
async def test_an_edit_of_two_files_is_judged_as_a_whole(
    address: ServerAddress, model: str, tmp_path: Path
) -> None:
    """The loop edits both files, its answer has both, and no line outside of the units is changed."""
    tasks = [task for task in read_tasks("several", tmp_path) if task.name == "several/rename-in-two-files"]
    plan = EditsPlan("several", model, ("low",), tuple(tasks))
    with Results(tmp_path / "r.jsonl") as results:
        await run_edits(address, plan, results, _silent)
        counts = summary(plan, results)["efforts"]["low"]
    assert (counts["passed"], counts["outside_unit_lines"], counts["refused"]) == (1, 0, 0.0)


def _silent(answer: Answer, score: Score | None) -> None:
    del answer, score
